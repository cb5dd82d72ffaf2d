//! Worker images that lack a layer.
//!
//! A test of a denial is worth nothing if it cannot fail. With an image that is started without the layer
//! in question, and every protection accepted, the same act must happen and the world must show it.

use bailiwick::{Layer, TestImage};

#[cfg(worker_image)]
static BYTES: Option<&[u8]> = Some(include_bytes!(env!("BAILIWICK_TEST_IMAGE")));
#[cfg(not(worker_image))]
static BYTES: Option<&[u8]> = None;

/// The layers that only namespaces give, and then one more.
macro_rules! plain {
    ($more:literal) => {
        concat!("mount-view,pid-namespace,ipc-namespace,net-namespace,socket-broker", $more)
    };
}

#[track_caller]
fn started_without(without: &'static str) -> TestImage {
    let bytes = BYTES.unwrap_or_else(|| panic!("no worker is built for this platform"));
    TestImage { bytes, without }
}

/// The worker, without one layer.
///
/// # Panics
///
/// For a layer that cannot be left out (the keeper is the process itself), and on a platform for which no
/// worker is built.
#[must_use]
#[track_caller]
pub fn image(without: Layer) -> TestImage {
    match without {
        Layer::Keeper => panic!("the keeper cannot be left out"),
        other => started_without(other.name()),
    }
}

/// The worker, without several layers: their names with commas between them.
///
/// # Panics
///
/// On a platform for which no worker is built.
#[must_use]
#[track_caller]
pub fn image_without(layers: &[Layer]) -> TestImage {
    let names: Vec<&str> = layers.iter().map(|layer| layer.name()).collect();
    // One for each session of a test that asks for it, until the test ends.
    started_without(Box::leak(names.join(",").into_boxed_str()))
}

/// The worker as it is on a host without namespaces.
///
/// # Panics
///
/// On a platform for which no worker is built.
#[must_use]
#[track_caller]
pub fn image_without_namespaces() -> TestImage {
    started_without(plain!(""))
}

/// The worker as it is on a host without namespaces, and without one layer more.
///
/// # Panics
///
/// As [`image`], and for a layer that namespaces give.
#[must_use]
#[track_caller]
pub fn plain_image(without: Layer) -> TestImage {
    started_without(match without {
        Layer::Landlock => plain!(",landlock"),
        Layer::Scope => plain!(",scope"),
        Layer::Seccomp => plain!(",seccomp"),
        Layer::Capabilities => plain!(",capabilities"),
        Layer::Hygiene => plain!(",hygiene"),
        other => panic!("no host without namespaces has the layer `{}`", other.name()),
    })
}

/// The worker, without namespaces and without any of the layers that [`image`] leaves out one by one: for
/// acts that more than one of them refuses.
///
/// # Panics
///
/// On a platform for which no worker is built.
#[must_use]
#[track_caller]
pub fn image_without_layers() -> TestImage {
    started_without(plain!(",landlock,scope,seccomp,capabilities,hygiene"))
}
