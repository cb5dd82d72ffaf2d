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
        other => panic!("no image can be built without the layer `{}`", other.name()),
    };
    present(image)
}

/// The worker, built without any of the layers that [`image`] leaves out one by one: for acts that more
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
