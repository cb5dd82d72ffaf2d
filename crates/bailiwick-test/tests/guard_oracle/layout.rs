//! What a layout is made of, and how it is made.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::{
    MountFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, mount_move, mount_remount, unmount,
};

/// One step. Paths are relative to the base, so that a layout can be made again at another place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Directory(PathBuf),
    File(PathBuf),
    /// The target is as it will stand in the link, but for a leading `/`, which means the base.
    Symlink {
        target: PathBuf,
        at: PathBuf,
    },
    HardLink {
        of: PathBuf,
        at: PathBuf,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    Mode {
        of: PathBuf,
        mode: u32,
    },
    Bind {
        of: PathBuf,
        at: PathBuf,
        recursive: bool,
    },
    Tmpfs(PathBuf),
    /// A fresh directory of another file system; which of those that the place has.
    Foreign {
        which: usize,
        at: PathBuf,
    },
    Overlay(Overlay),
    /// The mount here becomes read-only, not its file system.
    ReadOnly(PathBuf),
    Writable(PathBuf),
    MoveMount {
        from: PathBuf,
        to: PathBuf,
    },
    Unmount {
        at: PathBuf,
        lazily: bool,
    },
    Subvolume(PathBuf),
    Snapshot {
        of: PathBuf,
        at: PathBuf,
    },
}

/// An overlay file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Overlay {
    pub(crate) lowers: Vec<PathBuf>,
    /// Upper and work directory; without them it is read-only.
    pub(crate) written: Option<(PathBuf, PathBuf)>,
    pub(crate) at: PathBuf,
    pub(crate) relative: bool,
    pub(crate) options: &'static str,
}

/// The session that is asked for in a layout.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) store: PathBuf,
    /// The store is opened before the guard is asked, not only placed.
    pub(crate) opened: bool,
    pub(crate) protect: Vec<PathBuf>,
    pub(crate) roots: Vec<PathBuf>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Layout {
    pub(crate) seed: u64,
    pub(crate) steps: Vec<Step>,
    pub(crate) wish: Wish,
    /// What somebody does between a grant and the next command.
    pub(crate) later: Vec<Step>,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "layout of seed {}:", self.seed)?;
        for step in &self.steps {
            writeln!(f, "  {step:?}")?;
        }
        writeln!(f, "  {:?}", self.wish)?;
        for step in &self.later {
            writeln!(f, "  later {step:?}")?;
        }
        Ok(())
    }
}

/// Where layouts are made: a base that is empty, and what it takes to make more.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) base: PathBuf,
    /// What holds everything from which the layout can be reached: the base, and the disks that are mounted there.
    pub(crate) all: PathBuf,
    /// Directories on other file systems, seen outside of the base.
    pub(crate) foreign: Vec<PathBuf>,
    /// Extended attributes of overlays are those of users: where root is root of a user namespace only.
    pub(crate) userxattr: bool,
}

impl Place {
    pub(crate) fn at(&self, path: &Path) -> PathBuf {
        if path == Path::new("") { self.base.clone() } else { self.base.join(path) }
    }

    /// Does a step. What the kernel refuses is an error, and no part of the layout.
    pub(crate) fn make(&self, step: &Step) -> io::Result<()> {
        match step {
            Step::Directory(at) => fs::create_dir(self.at(at)),
            Step::File(at) => {
                fs::File::create_new(self.at(at))?;
                fs::write(self.at(at), format!("{}\n", at.display()))
            }
            Step::Symlink { target, at } => match target.strip_prefix("/") {
                Ok(target) => symlink(self.at(target), self.at(at)),
                Err(_) => symlink(target, self.at(at)),
            },
            Step::HardLink { of, at } => fs::hard_link(self.at(of), self.at(at)),
            Step::Rename { from, to } => fs::rename(self.at(from), self.at(to)),
            Step::Mode { of, mode } => fs::set_permissions(self.at(of), fs::Permissions::from_mode(*mode)),
            Step::Bind { of, at, recursive: false } => Ok(mount_bind(self.at(of), self.at(at))?),
            Step::Bind { of, at, recursive: true } => Ok(mount_bind_recursive(self.at(of), self.at(at))?),
            Step::Tmpfs(at) => Ok(mount("tmpfs", self.at(at), "tmpfs", MountFlags::empty(), c"size=4m")?),
            Step::Foreign { which, at } => {
                let whole = self.foreign.get(*which).ok_or(io::ErrorKind::NotFound)?;
                let number = fs::read_dir(whole)?.count();
                let fresh = whole.join(format!("f{number}"));
                fs::create_dir(&fresh)?;
                Ok(mount_bind(&fresh, self.at(at))?)
            }
            Step::Overlay(overlay) => self.overlay(overlay),
            Step::ReadOnly(at) => Ok(mount_remount(self.at(at), MountFlags::BIND | MountFlags::RDONLY, "")?),
            Step::Writable(at) => Ok(mount_remount(self.at(at), MountFlags::BIND, "")?),
            Step::MoveMount { from, to } => Ok(mount_move(self.at(from), self.at(to))?),
            Step::Unmount { at, lazily } => {
                let how = if *lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
                if at == Path::new("") {
                    return Err(io::ErrorKind::InvalidInput.into());
                }
                Ok(unmount(self.at(at), how)?)
            }
            Step::Subvolume(at) => btrfs(&["create".as_ref(), self.at(at).as_ref()]),
            Step::Snapshot { of, at } => {
                btrfs(&["snapshot".as_ref(), self.at(of).as_ref(), self.at(at).as_ref()])
            }
        }
    }

    fn overlay(&self, overlay: &Overlay) -> io::Result<()> {
        // Relative ones are taken from the working directory, which is this thread's own.
        let path = |path: &Path| match (overlay.relative, path == Path::new("")) {
            (true, true) => PathBuf::from("."),
            (true, false) => path.to_owned(),
            (false, _) => self.at(path),
        };
        let lowers: Vec<String> =
            overlay.lowers.iter().map(|lower| path(lower).display().to_string()).collect();
        let mut options = format!("lowerdir={}", lowers.join(":"));
        if let Some((upper, work)) = &overlay.written {
            options =
                format!("{options},upperdir={},workdir={}", path(upper).display(), path(work).display());
        }
        let userxattr = if self.userxattr { ",userxattr" } else { "" };
        let options = std::ffi::CString::new(format!("{options}{userxattr}{}", overlay.options))?;
        rustix::process::chdir(&self.base)?;
        let mounted =
            mount("overlay", self.at(&overlay.at), "overlay", MountFlags::empty(), options.as_c_str());
        rustix::process::chdir("/")?;
        Ok(mounted?)
    }
}

fn btrfs(arguments: &[&std::ffi::OsStr]) -> io::Result<()> {
    let output = Command::new("btrfs").arg("subvolume").args(arguments).output()?;
    if output.status.success() {
        Ok(())
    } else {
        Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}

/// What is seen below the base, through every mount, following no link.
#[derive(Debug, Default)]
pub(crate) struct Sight {
    /// The base itself, as an empty path, and every directory that can be listed.
    pub(crate) directories: Vec<PathBuf>,
    pub(crate) files: Vec<PathBuf>,
    pub(crate) links: Vec<PathBuf>,
    /// There is more than was looked at.
    pub(crate) is_cut: bool,
}

impl Sight {
    pub(crate) fn of(base: &Path, limit: usize) -> Self {
        let mut sight = Self { directories: vec![PathBuf::new()], ..Self::default() };
        let mut next = 0;
        while let Some(directory) = sight.directories.get(next).cloned() {
            next += 1;
            let Ok(entries) = fs::read_dir(base.join(&directory)) else { continue };
            let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
            names.sort();
            for name in names {
                let path = directory.join(name);
                let Ok(found) = fs::symlink_metadata(base.join(&path)) else { continue };
                if sight.directories.len() + sight.files.len() + sight.links.len() >= limit {
                    sight.is_cut = true;
                    return sight;
                }
                if found.is_dir() {
                    sight.directories.push(path);
                } else if found.is_symlink() {
                    sight.links.push(path);
                } else if found.is_file() {
                    sight.files.push(path);
                }
            }
        }
        sight
    }
}
