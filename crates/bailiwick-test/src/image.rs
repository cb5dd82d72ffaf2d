//! Worker images that lack a layer.
//!
//! A test of a denial is worth nothing if it cannot fail. With an image that was built without the layer
//! in question, and every protection accepted, the same act must happen and the world must show it.

use bailiwick::Layer;

macro_rules! images {
    ($($constant:ident $variable:literal;)+) => {
        $(
            #[cfg(worker_image)]
            static $constant: Option<&[u8]> = Some(include_bytes!(env!($variable)));
            #[cfg(not(worker_image))]
            static $constant: Option<&[u8]> = None;
        )+
    };
}

images! {
    LANDLOCK "BAILIWICK_TEST_IMAGE_WITHOUT_LANDLOCK";
    SCOPE "BAILIWICK_TEST_IMAGE_WITHOUT_SCOPE";
    SECCOMP "BAILIWICK_TEST_IMAGE_WITHOUT_SECCOMP";
    CAPABILITIES "BAILIWICK_TEST_IMAGE_WITHOUT_CAPABILITIES";
    HYGIENE "BAILIWICK_TEST_IMAGE_WITHOUT_HYGIENE";
    MOUNT_VIEW "BAILIWICK_TEST_IMAGE_WITHOUT_MOUNT_VIEW";
    PID_NAMESPACE "BAILIWICK_TEST_IMAGE_WITHOUT_PID_NAMESPACE";
    IPC_NAMESPACE "BAILIWICK_TEST_IMAGE_WITHOUT_IPC_NAMESPACE";
    NET_NAMESPACE "BAILIWICK_TEST_IMAGE_WITHOUT_NET_NAMESPACE";
    SOCKET_BROKER "BAILIWICK_TEST_IMAGE_WITHOUT_SOCKET_BROKER";
    NAMESPACES "BAILIWICK_TEST_IMAGE_WITHOUT_NAMESPACES";
    PLAIN_LANDLOCK "BAILIWICK_TEST_IMAGE_WITHOUT_NAMESPACES_AND_LANDLOCK";
    PLAIN_SCOPE "BAILIWICK_TEST_IMAGE_WITHOUT_NAMESPACES_AND_SCOPE";
    PLAIN_SECCOMP "BAILIWICK_TEST_IMAGE_WITHOUT_NAMESPACES_AND_SECCOMP";
    PLAIN_CAPABILITIES "BAILIWICK_TEST_IMAGE_WITHOUT_NAMESPACES_AND_CAPABILITIES";
    PLAIN_HYGIENE "BAILIWICK_TEST_IMAGE_WITHOUT_NAMESPACES_AND_HYGIENE";
    LAYERS "BAILIWICK_TEST_IMAGE_WITHOUT_LAYERS";
}

/// The worker, built without one layer.
///
/// # Panics
///
/// For a layer that cannot be left out (the keeper is the process itself), and on a platform for which no
/// worker is built.
#[must_use]
#[track_caller]
pub fn image(without: Layer) -> &'static [u8] {
    let image = match without {
        Layer::Landlock => LANDLOCK,
        Layer::Scope => SCOPE,
        Layer::Seccomp => SECCOMP,
        Layer::Capabilities => CAPABILITIES,
        Layer::Hygiene => HYGIENE,
        Layer::MountView => MOUNT_VIEW,
        Layer::PidNamespace => PID_NAMESPACE,
        Layer::IpcNamespace => IPC_NAMESPACE,
        Layer::NetNamespace => NET_NAMESPACE,
        Layer::SocketBroker => SOCKET_BROKER,
        other => panic!("no image can be built without the layer `{}`", other.name()),
    };
    present(image)
}

/// The worker as it is on a host without namespaces.
///
/// # Panics
///
/// On a platform for which no worker is built.
#[must_use]
#[track_caller]
pub fn image_without_namespaces() -> &'static [u8] {
    present(NAMESPACES)
}

/// The worker as it is on a host without namespaces, and built without one layer more.
///
/// # Panics
///
/// As [`image`], and for a layer that namespaces give.
#[must_use]
#[track_caller]
pub fn plain_image(without: Layer) -> &'static [u8] {
    let image = match without {
        Layer::Landlock => PLAIN_LANDLOCK,
        Layer::Scope => PLAIN_SCOPE,
        Layer::Seccomp => PLAIN_SECCOMP,
        Layer::Capabilities => PLAIN_CAPABILITIES,
        Layer::Hygiene => PLAIN_HYGIENE,
        other => panic!("no image can be built without the layer `{}`", other.name()),
    };
    present(image)
}

/// The worker, built without namespaces and without any of the layers that [`image`] leaves out one by one: for acts that more
/// than one of them refuses.
///
/// # Panics
///
/// On a platform for which no worker is built.
#[must_use]
#[track_caller]
pub fn image_without_layers() -> &'static [u8] {
    present(LAYERS)
}

#[track_caller]
fn present(image: Option<&'static [u8]>) -> &'static [u8] {
    image.unwrap_or_else(|| panic!("no worker is built for this platform"))
}
