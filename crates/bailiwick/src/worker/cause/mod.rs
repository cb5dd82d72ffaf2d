//! Why a mechanism is not to be had on this host, in one of a few fixed words.
//!
//! The words are for programs: what helps differs from cause to cause. Decided is by what the kernel answers and by its
//! settings, never by its release.

mod landlock;

pub(crate) use landlock::{missing as landlock_missing, shortfall as landlock_shortfall};

/// A cause, as the field `cause` of an error has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    /// The kernel was built without it.
    NotBuiltIn,
    /// It is built in, and this boot does not use it.
    DisabledAtBoot,
    /// A filter of system calls or a security module, as containers have them, stands before it.
    Blocked,
    /// Either of the two: nothing that can be seen here tells them apart.
    NotBuiltInOrBlocked,
    /// The kernel has an older version than is needed.
    TooOld,
    /// The kernel reports a version, and refuses what belongs to it.
    ClaimsMore,
    /// It is there, and this process may not confine itself by it.
    CannotRestrict,
    /// A setting of the kernel forbids it to this user.
    SwitchedOff,
    /// As many as are permitted exist already, or are nested.
    LimitReached,
    /// Another answer of the kernel.
    Refused,
}

impl Word {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NotBuiltIn => "not-built-in",
            Self::DisabledAtBoot => "disabled-at-boot",
            Self::Blocked => "blocked",
            Self::NotBuiltInOrBlocked => "not-built-in-or-blocked",
            Self::TooOld => "too-old",
            Self::ClaimsMore => "claims-more",
            Self::CannotRestrict => "cannot-restrict",
            Self::SwitchedOff => "switched-off",
            Self::LimitReached => "limit-reached",
            Self::Refused => "refused",
        }
    }
}

/// What could not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mechanism {
    /// Entering a Landlock ruleset that was made.
    LandlockRestrict,
    /// Installing a filter of system calls.
    SystemCallFilter,
    /// A user namespace, or writing its maps.
    UserNamespace,
    /// A namespace of another kind, from outside of a user namespace or within one.
    Namespace,
    /// Mounting, binding or moving a mount in a mount namespace of one's own.
    Mount,
    /// Changing attributes of mounts (`mount_setattr`, Linux 5.12), or copying mounts by descriptor.
    MountAttributes,
}

/// Settings of the kernel that decide who may have namespaces. None where the kernel has no such setting, or does not
/// show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Settings {
    /// `user.max_user_namespaces`.
    pub(crate) max_user_namespaces: Option<u64>,
    /// `kernel.unprivileged_userns_clone`, of Debian and others.
    pub(crate) unprivileged_userns_clone: Option<u64>,
    /// `kernel.apparmor_restrict_unprivileged_userns`, of Ubuntu and others.
    pub(crate) apparmor_restrict_unprivileged_userns: Option<u64>,
}

impl Settings {
    pub(crate) fn read() -> Self {
        let setting = |path| std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
        Self {
            max_user_namespaces: setting("/proc/sys/user/max_user_namespaces"),
            unprivileged_userns_clone: setting("/proc/sys/kernel/unprivileged_userns_clone"),
            apparmor_restrict_unprivileged_userns: setting(
                "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            ),
        }
    }
}

/// A cause, and the setting that makes it so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) word: Word,
    /// Name and value of the setting.
    pub(crate) setting: Option<(&'static str, u64)>,
}

impl From<Word> for Cause {
    fn from(word: Word) -> Self {
        Self { word, setting: None }
    }
}

/// Numbers of the answers that tell something.
mod answer {
    pub(super) const PERM: i32 = libc::EPERM;
    pub(super) const ACCES: i32 = libc::EACCES;
    pub(super) const INVAL: i32 = libc::EINVAL;
    pub(super) const NOSPC: i32 = libc::ENOSPC;
    pub(super) const NOSYS: i32 = libc::ENOSYS;
    pub(super) const USERS: i32 = libc::EUSERS;
}

/// Why a mechanism could not be used, from the kernel's answer and its settings.
pub(crate) fn cause_of(mechanism: Mechanism, errno: i32, settings: &Settings) -> Cause {
    use Mechanism::{LandlockRestrict, Mount, MountAttributes, Namespace, SystemCallFilter, UserNamespace};
    use answer::{ACCES, INVAL, NOSPC, NOSYS, PERM, USERS};
    match (mechanism, errno) {
        (LandlockRestrict, _) => Word::CannotRestrict.into(),
        // A kernel without filters does not know the operation.
        (SystemCallFilter, INVAL) => Word::NotBuiltIn.into(),
        (SystemCallFilter | MountAttributes, NOSYS) => Word::NotBuiltInOrBlocked.into(),
        // It knows the call, and not this kind of namespace.
        (UserNamespace | Namespace, INVAL) => Word::NotBuiltIn.into(),
        // Every kernel knows these calls.
        (UserNamespace | Namespace | Mount, NOSYS) => Word::Blocked.into(),
        (UserNamespace, NOSPC) if settings.max_user_namespaces == Some(0) => {
            Cause { word: Word::SwitchedOff, setting: Some(("user.max_user_namespaces", 0)) }
        }
        (UserNamespace | Namespace, NOSPC | USERS) => Word::LimitReached.into(),
        (UserNamespace | Namespace | Mount | MountAttributes, PERM | ACCES) => forbidden(settings),
        (SystemCallFilter, PERM | ACCES) => Word::Blocked.into(),
        _ => Word::Refused.into(),
    }
}

/// Who forbids what the kernel would permit.
fn forbidden(settings: &Settings) -> Cause {
    if settings.unprivileged_userns_clone == Some(0) {
        return Cause { word: Word::SwitchedOff, setting: Some(("kernel.unprivileged_userns_clone", 0)) };
    }
    // There the namespace is made, and what is done in it is forbidden.
    match settings.apparmor_restrict_unprivileged_userns {
        Some(value @ 1..) => Cause {
            word: Word::SwitchedOff,
            setting: Some(("kernel.apparmor_restrict_unprivileged_userns", value)),
        },
        _ => Word::Blocked.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Settings = Settings {
        max_user_namespaces: Some(15_000),
        unprivileged_userns_clone: None,
        apparmor_restrict_unprivileged_userns: None,
    };

    #[test]
    fn answers_and_settings_tell_the_cause() {
        use Mechanism::{
            LandlockRestrict, Mount, MountAttributes, Namespace, SystemCallFilter, UserNamespace,
        };
        let none = Settings { max_user_namespaces: Some(0), ..FREE };
        let debian = Settings { unprivileged_userns_clone: Some(0), ..FREE };
        let debian_open = Settings { unprivileged_userns_clone: Some(1), ..FREE };
        let ubuntu = Settings { apparmor_restrict_unprivileged_userns: Some(1), ..FREE };
        let ubuntu_open = Settings { apparmor_restrict_unprivileged_userns: Some(0), ..FREE };
        let unknown = Settings::default();
        let table: &[(Mechanism, i32, &Settings, &str, Option<&str>)] = &[
            (LandlockRestrict, libc::E2BIG, &FREE, "cannot-restrict", None),
            (LandlockRestrict, libc::EPERM, &FREE, "cannot-restrict", None),
            (SystemCallFilter, libc::EINVAL, &FREE, "not-built-in", None),
            (SystemCallFilter, libc::ENOSYS, &FREE, "not-built-in-or-blocked", None),
            (SystemCallFilter, libc::EPERM, &FREE, "blocked", None),
            (SystemCallFilter, libc::EACCES, &debian, "blocked", None),
            (SystemCallFilter, libc::ENOMEM, &FREE, "refused", None),
            (UserNamespace, libc::EINVAL, &FREE, "not-built-in", None),
            (UserNamespace, libc::ENOSYS, &FREE, "blocked", None),
            (UserNamespace, libc::ENOSPC, &none, "switched-off", Some("user.max_user_namespaces")),
            (UserNamespace, libc::ENOSPC, &FREE, "limit-reached", None),
            (UserNamespace, libc::ENOSPC, &unknown, "limit-reached", None),
            (UserNamespace, libc::EUSERS, &FREE, "limit-reached", None),
            (UserNamespace, libc::EPERM, &FREE, "blocked", None),
            (UserNamespace, libc::EPERM, &unknown, "blocked", None),
            (UserNamespace, libc::EPERM, &debian, "switched-off", Some("kernel.unprivileged_userns_clone")),
            (UserNamespace, libc::EPERM, &debian_open, "blocked", None),
            (
                UserNamespace,
                libc::EACCES,
                &ubuntu,
                "switched-off",
                Some("kernel.apparmor_restrict_unprivileged_userns"),
            ),
            (UserNamespace, libc::EPERM, &ubuntu_open, "blocked", None),
            (UserNamespace, libc::ENOMEM, &ubuntu, "refused", None),
            (Namespace, libc::EINVAL, &FREE, "not-built-in", None),
            (Namespace, libc::ENOSPC, &none, "limit-reached", None),
            (Namespace, libc::EPERM, &FREE, "blocked", None),
            (Namespace, libc::ENOSYS, &FREE, "blocked", None),
            (
                Mount,
                libc::EPERM,
                &ubuntu,
                "switched-off",
                Some("kernel.apparmor_restrict_unprivileged_userns"),
            ),
            (Mount, libc::EACCES, &FREE, "blocked", None),
            (Mount, libc::ENOENT, &FREE, "refused", None),
            (MountAttributes, libc::ENOSYS, &FREE, "not-built-in-or-blocked", None),
            (MountAttributes, libc::EPERM, &FREE, "blocked", None),
            (MountAttributes, libc::EINVAL, &FREE, "refused", None),
        ];
        for (mechanism, errno, settings, word, setting) in table {
            let cause = cause_of(*mechanism, *errno, settings);
            let told = (cause.word.name(), cause.setting.map(|(name, _)| name));
            assert_eq!(told, (*word, *setting), "{mechanism:?} {errno} {settings:?}");
        }
    }

    #[test]
    fn settings_that_are_there_are_read() {
        let shown = |name: &str| std::fs::read_to_string(format!("/proc/sys/{name}")).ok();
        let expected = |name: &str| shown(name).map(|text| text.trim().parse::<u64>().unwrap());
        let settings = Settings::read();
        assert_eq!(settings.max_user_namespaces, expected("user/max_user_namespaces"));
        assert_eq!(settings.unprivileged_userns_clone, expected("kernel/unprivileged_userns_clone"));
        assert_eq!(
            settings.apparmor_restrict_unprivileged_userns,
            expected("kernel/apparmor_restrict_unprivileged_userns")
        );
    }
}
