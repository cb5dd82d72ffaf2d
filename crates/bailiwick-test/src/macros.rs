//! The macros: `cases!` and its two narrower forms, and `requires!`.

/// Declares cases. Each runs twice: `NAME::as_root` and `NAME::as_user`.
///
/// `as_root` runs the body with effective uid 0, or is a recorded skip. `as_user` runs it as a plain user:
/// directly, or, when the test process is root, by running its own test again under
/// [`case::PLAIN_UID`](crate::case::PLAIN_UID) with no groups, no capabilities, a clean environment and a
/// time limit.
///
/// A body takes the [`World`](crate::World) of that run. An `async` body runs on a current-thread runtime.
/// Options follow the parameter:
///
/// - `uid = 61240`: the uid of the plain run. A case that forks without bound takes one of its own, so that
///   `RLIMIT_NPROC` counts its processes alone; whatever that uid leaves behind fails the case. Only root
///   can give it one, so without root such a plain run is a recorded skip.
/// - `seconds = 300`: the time limit of the plain run, in seconds (default 120).
///
/// ```
/// use bailiwick_test::{Snapshot, World, cases};
///
/// cases! {
///     /// C00: reading changes nothing.
///     fn c00_reading(world: &World) {
///         let before = Snapshot::of(world.secret());
///         std::fs::read(world.secret()).unwrap();
///         before.assert_unchanged();
///     }
///
///     /// C00: the same, on the runtime, under a uid of its own.
///     async fn c00_reading_later(world: &World, uid = 61300, seconds = 20) {
///         tokio::time::sleep(std::time::Duration::from_millis(1)).await;
///         assert!(world.secret().is_file());
///     }
/// }
/// ```
#[macro_export]
macro_rules! cases {
    ($($case:tt)*) => { $crate::__cases! { [as_root as_user] $($case)* } };
}

/// Declares cases that only root can have: `NAME::as_root`. Syntax as in [`cases!`].
#[macro_export]
macro_rules! root_cases {
    ($($case:tt)*) => { $crate::__cases! { [as_root] $($case)* } };
}

/// Declares cases that only a plain user can have: `NAME::as_user`. Syntax as in [`cases!`].
///
/// For what root would not notice, such as a directory of mode 000, and for what root must not do, such as
/// forking without bound.
#[macro_export]
macro_rules! user_cases {
    ($($case:tt)*) => { $crate::__cases! { [as_user] $($case)* } };
}

/// Ends the test here when `need` is absent, and records that in the skip ledger.
///
/// The reason says what this test wanted it for. When `BAILIWICK_TEST_REQUIRE` names the need, its absence
/// fails the test instead. Usable in any test whose return type is `()`.
///
/// ```
/// use bailiwick_test::{Need, requires};
///
/// fn commits_with_git() {
///     requires!(Need::Git, "makes a commit");
/// }
/// # commits_with_git();
/// ```
#[macro_export]
macro_rules! requires {
    ($need:expr) => {
        $crate::requires!($need, "")
    };
    ($need:expr, $reason:expr) => {
        if !$crate::ledger::met($need, $reason) {
            return;
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __cases {
    ($users:tt) => {};
    ($users:tt $(#[$meta:meta])* fn $name:ident($world:ident: &World $(, $option:ident = $value:expr)* $(,)?)
        $body:block $($rest:tt)*) => {
        $crate::__case! { $users [$(#[$meta])*] $name [$($option = $value),*] ($world) $body }
        $crate::__cases! { $users $($rest)* }
    };
    ($users:tt $(#[$meta:meta])* async fn $name:ident($world:ident: &World $(, $option:ident = $value:expr)* $(,)?)
        $body:block $($rest:tt)*) => {
        $crate::__case! { $users [$(#[$meta])*] $name [$($option = $value),*] ($world)
            { $world.block_on(async { $body }) } }
        $crate::__cases! { $users $($rest)* }
    };
}

// `option_env!` and not `env!`: cargo names the binaries only to integration tests of their own package.
#[doc(hidden)]
#[macro_export]
macro_rules! __case {
    ([$($user:ident)+] [$(#[$meta:meta])*] $name:ident [$($option:ident = $value:expr),*] ($world:ident) $body:block) => {
        $(#[$meta])*
        #[cfg(test)]
        mod $name {
            #[allow(unused_imports, reason = "a body may need nothing from around it")]
            use super::*;

            fn body($world: &$crate::World) $body

            fn case(test: &'static str) -> $crate::case::Case {
                $crate::case::Case::new(test, body)
                    .binary("act", option_env!("CARGO_BIN_EXE_act"))
                    .binary("naive", option_env!("CARGO_BIN_EXE_naive"))
                    .binary("bailiwick", option_env!("CARGO_BIN_EXE_bailiwick"))
                    $(.$option($value))*
            }

            $(
                #[test]
                fn $user() {
                    case(concat!(module_path!(), "::", stringify!($user))).$user();
                }
            )+
        }
    };
}
