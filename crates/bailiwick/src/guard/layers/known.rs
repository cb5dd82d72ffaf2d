//! What has been searched, and what is known of the layers under a protected object.

use std::collections::HashSet;
use std::path::PathBuf;

use crate::identity::{Birth, Fault, FileHandle, Node, RealPlace, Sharing, Stack, Step};

/// Directories that were searched, each for objects that it does not hold.
///
/// A directory that is moved changes nothing of what is asked here, so this is kept for one grant, until the mount table
/// changes.
#[derive(Debug, Default)]
pub(in super::super) struct Known {
    pub(super) handles: HashSet<(Node, FileHandle)>,
    pub(super) births: HashSet<(Node, Birth)>,
    /// Whether anything was decided by what the kernel tells of layers that cannot be found.
    pub(in super::super) is_relied_on: bool,
}

impl Known {
    /// Forgets everything.
    pub(in super::super) fn forget(&mut self) {
        *self = Self::default();
    }
}

/// What is known of the layers under a protected object.
pub(super) struct Layers {
    /// Where it lies on the overlay.
    pub(super) paths: Vec<PathBuf>,
    /// The overlay's root, the object, and the directories between them.
    steps: Vec<Step>,
    /// Those of its files that have names outside of it, as far as they are known.
    files: Vec<Option<FileHandle>>,
    /// One of those files, and one of which it cannot be told which file a write changes.
    linked: Option<PathBuf>,
    ambiguous: Option<PathBuf>,
    is_hidden: bool,
}

/// How a place can be told from the layers.
pub(super) enum Means {
    /// It is on another file system than any of them.
    Apart,
    /// By handles, these.
    Handles(Vec<FileHandle>),
    /// By birth times, of these steps.
    Births(Vec<(Birth, PathBuf)>),
}

impl Layers {
    /// `linked`: places on the overlay of files with names outside of the object, and their names here.
    pub(super) fn look(
        stack: &Stack,
        paths: Vec<PathBuf>,
        linked: Vec<(PathBuf, PathBuf)>,
    ) -> Result<Self, Fault> {
        let (mut steps, mut files) = (Vec::new(), Vec::new());
        let (mut first, mut ambiguous, mut is_hidden) = (None, None, false);
        for path in &paths {
            match stack.chain(path)? {
                Some(chain) => steps.extend(chain),
                None => is_hidden = true,
            }
        }
        for (place, name) in linked {
            let (handle, is_exact) = match stack.file(&place)? {
                Some((handle, is_exact)) => (Some(handle), is_exact),
                None => (None, false),
            };
            if !is_exact {
                ambiguous = Some(name.clone());
            }
            files.push(handle);
            first = Some(name);
        }
        Ok(Self { paths, steps, files, linked: first, ambiguous, is_hidden })
    }

    /// How a place can be told from them, or why it cannot.
    pub(super) fn means(&self, stack: &Stack, place: &RealPlace<'_>) -> Result<Means, String> {
        if self.is_hidden {
            return Err("a directory above what is protected cannot be looked at on that overlay".to_owned());
        }
        if let Some(possible) = self.by_handle(place) {
            // Where the upper directory is not, a copy in it has no other name.
            let is_apart = stack.top().is_some_and(|top| place.sharing(top) == Sharing::Apart);
            return match &self.ambiguous {
                Some(file) if !is_apart => Err(super::compare::several_names(file)),
                _ if possible.is_empty() => Ok(Means::Apart),
                _ => Ok(Means::Handles(possible)),
            };
        }
        if let Some(file) = &self.linked {
            return Err(super::compare::several_names(file));
        }
        let births = self.steps.iter().map(|step| Some((step.born?, step.path.clone()))).collect();
        match births {
            Some(births) if place.object().id.born.is_some() => Ok(Means::Births(births)),
            _ => Err(super::compare::NO_MEANS.to_owned()),
        }
    }

    /// Those that may lie on the file system of the place; `None` where handles do not tell.
    fn by_handle(&self, place: &RealPlace<'_>) -> Option<Vec<FileHandle>> {
        let steps = self.steps.iter().map(|step| step.handle.as_ref());
        let mut possible = Vec::new();
        for handle in steps.chain(self.files.iter().map(Option::as_ref)) {
            let handle = handle?;
            match place.sharing(handle) {
                Sharing::Apart => {}
                Sharing::Possible => possible.push(handle.clone().into_real()),
                Sharing::Unknown => return None,
            }
        }
        Some(possible)
    }
}
