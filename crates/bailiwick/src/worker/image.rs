//! The worker image: bytes built into this crate, run from a sealed memfd.
//!
//! So there is no helper file that a command could reach by an alias, that a package manager could strip
//! of its execute bit, or that a search path could replace.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;

use crate::error::{Error, ErrorKind, SystemCall};

#[cfg(worker_image)]
static BUILT_IN: Option<&[u8]> = Some(include_bytes!(env!("BAILIWICK_WORKER_IMAGE")));
#[cfg(not(worker_image))]
static BUILT_IN: Option<&[u8]> = None;

/// Which image a session runs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Image {
    /// The one built into this crate.
    #[default]
    BuiltIn,
    /// Another one, started without some layers.
    #[cfg(feature = "_test-image")]
    Test(TestImage),
}

/// An image whose layers can be left out, and the layers to leave out: names with commas between them.
#[cfg(feature = "_test-image")]
#[derive(Debug, Clone, Copy)]
#[expect(clippy::exhaustive_structs, reason = "made by tests, literally")]
pub struct TestImage {
    /// The image.
    pub bytes: &'static [u8],
    /// What to leave out.
    pub without: &'static str,
}

impl Image {
    /// What to leave out.
    pub(crate) fn without(self) -> &'static str {
        match self {
            Self::BuiltIn => "",
            #[cfg(feature = "_test-image")]
            Self::Test(image) => image.without,
        }
    }

    /// A descriptor of the image, for the life of the process or of the caller.
    ///
    /// # Errors
    /// [`ErrorKind::PlatformUnsupported`] where no image was built or no memfd may be executed.
    pub(crate) fn descriptor(self) -> Result<&'static OwnedFd, Error> {
        /// One memfd serves all sessions of the process: it is sealed, so none can change it for another.
        static SHARED: OnceLock<OwnedFd> = OnceLock::new();
        match self {
            Self::BuiltIn => {
                if let Some(made) = SHARED.get() {
                    return Ok(made);
                }
                let bytes = BUILT_IN.ok_or_else(|| {
                    Error::new(
                        ErrorKind::PlatformUnsupported,
                        "cannot open a session: this build of bailiwick holds no worker for this platform",
                    )
                    .text("needs", "Linux on x86-64")
                    .hint("run on Linux on x86-64; other platforms can reach one over a remote worker")
                })?;
                let made = seal(bytes)?;
                Ok(SHARED.get_or_init(|| made))
            }
            #[cfg(feature = "_test-image")]
            Self::Test(TestImage { bytes, .. }) => Ok(Box::leak(Box::new(seal(bytes)?))),
        }
    }
}

fn seal(bytes: &[u8]) -> Result<OwnedFd, Error> {
    const NAME: &str = "bailiwick-worker";
    let failed = |call, errno| {
        Error::new(ErrorKind::WorkerStart, "cannot make the worker image")
            .source(SystemCall::new(call, NAME, errno))
    };
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memfd = match memfd_create(NAME, flags | MemfdFlags::EXEC) {
        // MFD_EXEC came with Linux 6.3; before it every memfd can be executed.
        Err(Errno::INVAL) => memfd_create(NAME, flags),
        made => made,
    }
    .map_err(|errno| match errno {
        Errno::ACCESS => Error::new(
            ErrorKind::PlatformUnsupported,
            "cannot run the worker image: this host forbids to execute anonymous files",
        )
        .text("setting", "vm.memfd_noexec")
        .hint("set `vm.memfd_noexec` to 0 or 1 in the pid namespace of this process")
        .source(SystemCall::new("memfd_create", NAME, errno)),
        errno => failed("memfd_create", errno),
    })?;
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        written += rustix::io::retry_on_intr(|| rustix::io::write(&memfd, rest))
            .map_err(|errno| failed("write", errno))?;
    }
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    fcntl_add_seals(&memfd, seals).map_err(|errno| failed("fcntl", errno))?;
    Ok(memfd)
}
