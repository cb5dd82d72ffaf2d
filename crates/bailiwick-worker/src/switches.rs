//! Layers that are left out, **for tests only**: a test of a denial is worth nothing if it cannot fail, so it is run
//! again without the layer that is said to refuse.
//!
//! The image that is embedded in the SDK is built without the switches: there nothing can be left out, whatever it is
//! started with.

/// A layer that can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Switch {
    Landlock,
    Scope,
    Seccomp,
    Capabilities,
    Hygiene,
    MountView,
    PidNamespace,
    IpcNamespace,
    NetNamespace,
    SocketBroker,
}

/// Whether a layer is left out.
#[cfg(not(test_switches))]
pub(crate) const fn without(_layer: Switch) -> bool {
    false
}

/// Takes the layers to leave out from an argument; does nothing in the image of the SDK.
#[cfg(not(test_switches))]
pub(crate) fn take(_argument: Option<Vec<u8>>) {}

#[cfg(test_switches)]
static WITHOUT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// Whether a layer is left out.
#[cfg(test_switches)]
pub(crate) fn without(layer: Switch) -> bool {
    WITHOUT.load(std::sync::atomic::Ordering::Relaxed) & (1 << layer as u8) != 0
}

/// Takes the layers to leave out from an argument: names with commas between them.
#[cfg(test_switches)]
pub(crate) fn take(argument: Option<Vec<u8>>) {
    const NAMES: [(&[u8], Switch); 10] = [
        (b"landlock", Switch::Landlock),
        (b"scope", Switch::Scope),
        (b"seccomp", Switch::Seccomp),
        (b"capabilities", Switch::Capabilities),
        (b"hygiene", Switch::Hygiene),
        (b"mount-view", Switch::MountView),
        (b"pid-namespace", Switch::PidNamespace),
        (b"ipc-namespace", Switch::IpcNamespace),
        (b"net-namespace", Switch::NetNamespace),
        (b"socket-broker", Switch::SocketBroker),
    ];
    let argument = argument.unwrap_or_default();
    for name in argument.split(|byte| *byte == b',').filter(|name| !name.is_empty()) {
        match NAMES.iter().find(|(known, _)| *known == name) {
            Some((_, layer)) => {
                WITHOUT.fetch_or(1 << *layer as u8, std::sync::atomic::Ordering::Relaxed);
            }
            // A test that names no layer would prove nothing.
            None => crate::sys::exit_now(5),
        }
    }
}
