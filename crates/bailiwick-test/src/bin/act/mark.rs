//! An act on everything that is seen: leave a mark wherever the kernel lets this process.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::Act;
use crate::answer::{Answer, Failed, Prepare as _};
use crate::arguments::Arguments;

pub(crate) const ACTS: &[Act] = &[("mark", "BASE TAG LIMIT [NAME]...", mark)];

/// Names of marks begin with it. Marks are not marked again: what is seen at many places would grow at each.
const PREFIX: &str = "mark.";

/// Appends `TAG` to every file that can be written, makes a file in every directory that can be, and puts a new file
/// over one that cannot be written where its directory can. Tries for each `NAME` whether something can be put there, if
/// nothing is, and whether it, or a directory above it up to `BASE`, can be moved away, and undoes that. Tells how many
/// names it saw, how many marks it `made`, how many files that were there it `marked`, and for each `NAME` whether it
/// could be `displaced`.
///
/// Walks everything below `BASE`, through every mount, and follows no symbolic link. More than `LIMIT` names end the
/// act as one that could not be tried: what was not looked at must not look like a refusal.
fn mark(arguments: &mut Arguments) -> Answer {
    let base = arguments.path()?;
    let (tag, limit) = (arguments.text()?, arguments.number()?);
    let mut names = Vec::new();
    while !arguments.is_empty() {
        names.push((arguments.path()?, false));
    }
    let mut marker = Marker { tag, limit, seen: 0, made: 0, marked: 0, names };
    let mut pending = vec![base.clone()];
    while let Some(directory) = pending.pop() {
        marker.visit(&directory, &mut pending)?;
    }
    let names = std::mem::take(&mut marker.names).into_iter();
    let displaced: Result<Vec<bool>, Failed> =
        names.map(|(name, is_given)| Ok(is_given || can_displace(&base, &name)?)).collect();
    Ok(serde_json::json!({
        "seen": marker.seen,
        "made": marker.made,
        "marked": marker.marked,
        "displaced": displaced?,
    }))
}

struct Marker {
    tag: String,
    limit: u64,
    seen: u64,
    /// Files made, whose number is in their names.
    made: u64,
    /// Files that were there before and bear the mark.
    marked: u64,
    /// Each with whether nothing had it and something could be put there.
    names: Vec<(PathBuf, bool)>,
}

impl Marker {
    fn visit(&mut self, directory: &Path, pending: &mut Vec<PathBuf>) -> Result<(), Failed> {
        // Listed first, so that a mark is not met in the directory that it was just made in.
        // What cannot be listed, or not to its end, may be written all the same.
        let entries: Vec<fs::DirEntry> = fs::read_dir(directory).into_iter().flatten().flatten().collect();
        let is_writable = self.make(directory)?.is_some();
        if is_writable {
            self.give_names(directory)?;
        }
        for entry in entries {
            self.seen += 1;
            if self.seen > self.limit {
                return Err(Failed::CannotTry(format!("more than {} names are seen", self.limit)));
            }
            if entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
                continue;
            }
            // The type is asked of the object: the entry may be a mount point of another type.
            let path = entry.path();
            let Ok(found) = fs::symlink_metadata(&path) else { continue };
            if found.is_dir() {
                pending.push(path);
            } else if found.is_file() {
                self.append(directory, &path, is_writable)?;
            }
        }
        Ok(())
    }

    /// Makes what has a name that nothing has, wherever that may be: the directory may be the one of the name too.
    fn give_names(&mut self, directory: &Path) -> Result<(), Failed> {
        for (name, is_given) in &mut self.names {
            let Some(entry) = name.file_name().filter(|_| fs::symlink_metadata(&*name).is_err()) else {
                continue;
            };
            let made = directory.join(entry);
            if fs::create_dir(&made).is_ok() {
                *is_given |= fs::symlink_metadata(&*name).is_ok();
                fs::remove_dir(&made).prepare("remove a directory that was made")?;
            }
        }
        Ok(())
    }

    /// A new file in a directory, if the kernel lets it be made.
    fn make(&mut self, directory: &Path) -> Result<Option<PathBuf>, Failed> {
        let path = directory.join(format!("{PREFIX}{}.{}", self.tag, self.made));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                file.write_all(self.tag.as_bytes()).prepare("write a new mark")?;
                self.made += 1;
                Ok(Some(path))
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                Err(Failed::CannotTry(format!("{} is there already", path.display())))
            }
            Err(_refused) => Ok(None),
        }
    }

    fn append(&mut self, directory: &Path, path: &Path, is_writable: bool) -> Result<(), Failed> {
        match OpenOptions::new().append(true).custom_flags(libc::O_NOFOLLOW).open(path) {
            Ok(mut file) => {
                file.write_all(self.tag.as_bytes()).prepare("append a mark")?;
                self.marked += 1;
            }
            Err(_) if is_writable => {
                if let Some(new) = self.make(directory)? {
                    match fs::rename(&new, path) {
                        Ok(()) => self.marked += 1,
                        Err(_refused) => fs::remove_file(&new).prepare("remove a mark")?,
                    }
                }
            }
            Err(_refused) => {}
        }
        Ok(())
    }
}

/// Whether a name, or a directory above it up to `base`, can be moved so that nothing has the name any more. Puts back
/// what it moved: by the directory that holds it, because paths through it lead nowhere meanwhile.
fn can_displace(base: &Path, name: &Path) -> Result<bool, Failed> {
    const ASIDE: &str = "mark.aside";
    for path in name.ancestors().take_while(|path| *path != base) {
        let (Some(above), Some(entry)) = (path.parent(), path.file_name()) else { break };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(above) = rustix::fs::open(above, flags, Mode::empty()) else { continue };
        if rustix::fs::renameat(&above, entry, &above, ASIDE).is_ok() {
            let is_gone = fs::symlink_metadata(name).is_err();
            rustix::fs::renameat(&above, ASIDE, &above, entry).prepare("move a name back")?;
            if is_gone {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
