//! What the worker could not do to confine itself, as an error.

use bailiwick_wire::Step;

use crate::error::{Error, ErrorKind};
use crate::worker::{Mechanism, Settings, cause_of};

/// The error for a step of the confinement that failed.
pub(super) fn not_confined(step: Step, errno: i32) -> Error {
    let mechanism = match step {
        Step::NeedsMountView => {
            return no_powers(
                "mount-view",
                "there is no mount view here, and without one they reach modes and owners of every file",
                "run where mount namespaces can be had, or let commands keep nothing of root's powers (`none`)",
            );
        }
        Step::NeedsRoot => {
            return no_powers(
                "root",
                "this process is not root of the files with all three of them (CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER)",
                "let commands keep nothing of root's powers (`none`), and grant directories of this user",
            );
        }
        Step::Landlock => Some(Mechanism::LandlockRestrict),
        Step::Seccomp => Some(Mechanism::SystemCallFilter),
        _ => None,
    };
    let error = match mechanism.filter(|_| errno != 0) {
        None => Error::new(ErrorKind::GrantFailed, format!("the worker could not confine itself: {step:?}")),
        Some(mechanism) => {
            let (needs, hint) = match mechanism {
                Mechanism::LandlockRestrict => (
                    "Landlock",
                    "the kernel has Landlock, and lets this process not enter it: a container profile may block \
                     `landlock_restrict_self`, or this process lies in as many rulesets as the kernel stacks (16)",
                ),
                _ => (
                    "seccomp",
                    "run on a kernel with CONFIG_SECCOMP_FILTER, in a container that permits `seccomp`",
                ),
            };
            let cause = cause_of(mechanism, errno, &Settings::read());
            let mut error = Error::new(
                ErrorKind::PlatformUnsupported,
                format!("the worker could not confine itself by {needs}: {}", cause.word.name()),
            )
            .text("needs", needs)
            .text("cause", cause.word.name());
            if let Some((name, value)) = cause.setting {
                error = error.text("setting", name).number("setting_value", value);
            }
            error.hint(hint)
        }
    };
    let error = error.text("step", format!("{step:?}"));
    if errno == 0 {
        error
    } else {
        error.number("errno", errno).source(std::io::Error::from_raw_os_error(errno))
    }
}

/// The error for powers over files that commands cannot keep here.
fn no_powers(needs: &'static str, why: &str, hint: &str) -> Error {
    Error::new(
        ErrorKind::RootCapabilitiesUnavailable,
        format!("commands cannot keep root's powers over files (`files`): {why}"),
    )
    .text("root_capabilities", "files")
    .text("needs", needs)
    .hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Field;

    #[test]
    fn each_step_that_can_tell_a_cause_does() {
        let table = [
            (
                Step::Landlock,
                libc::E2BIG,
                ErrorKind::PlatformUnsupported,
                Some("cannot-restrict"),
                Some("Landlock"),
            ),
            (
                Step::Seccomp,
                libc::EINVAL,
                ErrorKind::PlatformUnsupported,
                Some("not-built-in"),
                Some("seccomp"),
            ),
            (Step::Seccomp, libc::EPERM, ErrorKind::PlatformUnsupported, Some("blocked"), Some("seccomp")),
            // Without an answer of the kernel there is nothing to tell it by.
            (Step::Landlock, 0, ErrorKind::GrantFailed, None, None),
            (Step::Capabilities, libc::EPERM, ErrorKind::GrantFailed, None, None),
            (Step::NeedsMountView, 0, ErrorKind::RootCapabilitiesUnavailable, None, Some("mount-view")),
            (Step::NeedsRoot, 0, ErrorKind::RootCapabilitiesUnavailable, None, Some("root")),
        ];
        for (step, errno, kind, cause, needs) in table {
            let error = not_confined(step, errno);
            let text = |name: &str| error.field(name).and_then(Field::as_text);
            assert_eq!((error.kind(), text("cause"), text("needs")), (kind, cause, needs), "{step:?}");
            assert_eq!(error.field("errno").is_some(), errno != 0, "{step:?}");
        }
    }
}
