//! The directories that overlay file systems are made of.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::Unresolved;
use crate::identity::fault::Fault;
use crate::identity::mount::{Device, Location, Mount, MountTable, handle, overlay_layers};
use crate::identity::object::{Key, Look};
use crate::identity::pinned::PinnedDir;
use crate::identity::resolve::open_exact;

/// A directory that an overlay is made of, found.
#[derive(Debug, Clone)]
pub(crate) struct Layer {
    pub(crate) location: Location,
    /// `None` where its path leads to something else by now, because a mount covers it.
    pub(crate) key: Option<Key>,
    pub(crate) path: PathBuf,
}

/// Where an overlay writes to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Written {
    /// The directory that holds what was written through the overlay; an overlay without one is read-only.
    pub(crate) upper: Option<Layer>,
    /// The directory that the kernel works in on the way.
    pub(crate) work: Option<Layer>,
    pub(crate) unresolved: Vec<Unresolved>,
    /// What the options may mean as well, where that exists: they do not always tell.
    also: Vec<Layer>,
}

impl Written {
    /// Every directory that may be written to through the overlay.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Layer> {
        self.upper.iter().chain(&self.work).chain(&self.also)
    }
}

/// The directories that an overlay is made of.
#[derive(Debug)]
pub(crate) struct Layers {
    pub(crate) found: Vec<Layer>,
    pub(crate) unresolved: Vec<Unresolved>,
}

/// The overlays of a mount table. Their options are texts of whoever mounted them: relative ones say nothing here,
/// and a path may lead somewhere else by now.
#[derive(Debug)]
pub(crate) struct Overlays<'t> {
    table: &'t MountTable,
    /// A mount of each overlay.
    stacks: Vec<&'t Mount>,
    written: HashMap<Device, Written>,
}

impl<'t> Overlays<'t> {
    pub(crate) fn new(table: &'t MountTable) -> Result<Self, Fault> {
        let mut stacks: Vec<&Mount> = Vec::new();
        for mount in table.iter().filter(|mount| mount.fs_type == "overlay") {
            if !stacks.iter().any(|known| known.device == mount.device) {
                stacks.push(mount);
            }
        }
        let mut overlays = Self { table, stacks, written: HashMap::new() };
        for mount in overlays.stacks.clone() {
            let written = overlays.resolve_written(mount)?;
            overlays.written.insert(mount.device, written);
        }
        Ok(overlays)
    }

    /// Every overlay, with where it writes to.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Device, &Written)> {
        self.written.iter().map(|(device, written)| (*device, written))
    }

    /// Where an overlay writes to; `None` for a device that is no overlay.
    pub(crate) fn written(&self, device: Device) -> Option<&Written> {
        self.written.get(&device)
    }

    /// All directories that an overlay is made of, and those that were not found; `None` where a device is no
    /// overlay.
    pub(crate) fn layers(&self, device: Device) -> Result<Option<Layers>, Fault> {
        let Some(mount) = self.stacks.iter().find(|mount| mount.device == device) else { return Ok(None) };
        let (mut found, mut unresolved) = match self.written.get(&device) {
            Some(written) => (written.all().cloned().collect(), written.unresolved.clone()),
            None => (Vec::<Layer>::new(), Vec::new()),
        };
        // Options that cannot be read are in `unresolved` already.
        if let Ok(layers) = overlay_layers(&mount.options) {
            for lower in &layers.lowers {
                match self.resolve(device, lower)? {
                    // An overlay is no layer of itself: it covers the one that it is mounted on.
                    Ok(layer) if layer.location.device != device => {
                        let covered = self.covered(device, lower, &layer);
                        found.push(layer);
                        found.extend(covered);
                    }
                    Ok(layer) => {
                        let covered = self.covered(device, lower, &layer);
                        if covered.is_empty() {
                            unresolved.push(itself(device, lower).into_lower());
                        }
                        found.extend(covered);
                    }
                    Err(fault) => unresolved.push(fault.into_lower()),
                }
            }
        }
        Ok(Some(Layers { found, unresolved }))
    }

    fn resolve_written(&self, mount: &Mount) -> Result<Written, Fault> {
        let mut written = Written::default();
        let Ok(layers) = overlay_layers(&mount.options) else {
            written.unresolved.push(Unresolved {
                device: mount.device,
                layer: PathBuf::new(),
                why: "the options of the overlay cannot be read",
                is_lower: true,
            });
            return Ok(written);
        };
        if let Some(upper) = &layers.upper {
            match self.resolve(mount.device, upper)? {
                Ok(layer) if layer.location.device == mount.device => {
                    written.unresolved.push(itself(mount.device, upper));
                }
                Ok(layer) if is_upper_of(&layer, mount)? => written.upper = Some(layer),
                Ok(_) => written.unresolved.push(Unresolved {
                    device: mount.device,
                    layer: upper.clone(),
                    why: "its path leads to another directory by now",
                    is_lower: false,
                }),
                Err(fault) => written.unresolved.push(fault),
            }
        }
        if let Some(work) = &layers.work {
            match self.resolve(mount.device, work)? {
                Ok(layer) if layer.location.device == mount.device => {
                    written.unresolved.push(itself(mount.device, work));
                }
                Ok(layer) => written.work = Some(layer),
                Err(fault) => written.unresolved.push(fault),
            }
        }
        for also in &layers.also {
            written.also.extend(self.resolve(mount.device, also)?);
        }
        Ok(written)
    }

    /// Where else a layer may lie that was found by its path: on a mount that is covered there by now. For an upper layer
    /// the file handle tells; for a lower one nothing does.
    fn covered(&self, overlay: Device, given: &Path, found: &Layer) -> Vec<Layer> {
        let mut layers: Vec<Layer> = Vec::new();
        for path in [given, &found.path] {
            for mount in self.table.iter().filter(|mount| mount.device != overlay) {
                let Some(location) = self.table.locate(mount.id, path) else { continue };
                if location != found.location && layers.iter().all(|layer| layer.location != location) {
                    layers.push(Layer { location, key: None, path: path.to_owned() });
                }
            }
        }
        layers
    }

    fn resolve(&self, device: Device, path: &Path) -> Result<Result<Layer, Unresolved>, Fault> {
        let unresolved = |why| Ok(Err(Unresolved { device, layer: path.into(), why, is_lower: false }));
        if !path.is_absolute() {
            return unresolved("whoever mounted the overlay wrote a relative path");
        }
        let dir = match PinnedDir::open(path) {
            Ok(dir) => dir,
            Err(Fault::NoDescriptors(cause)) => return Err(Fault::NoDescriptors(cause)),
            Err(Fault::NotFound { .. }) => return unresolved("nothing is at its path here"),
            Err(_) => return unresolved("its path cannot be opened here"),
        };
        match self.table.locate(dir.id().mount, dir.canonical()) {
            Some(location) => {
                Ok(Ok(Layer { location, key: Some(dir.id().key()), path: dir.canonical().to_owned() }))
            }
            None => unresolved("it lies on a mount that is not in the mount table"),
        }
    }
}

/// An overlay is no layer of itself: it covers the one at its path.
fn itself(device: Device, layer: &Path) -> Unresolved {
    Unresolved { device, layer: layer.into(), why: "its path leads to the overlay itself", is_lower: false }
}

/// Whether a directory is what an overlay writes to, as far as file handles or birth times tell: its path may have been
/// given to another directory since, or be that of a directory in another mount namespace.
fn is_upper_of(layer: &Layer, mount: &Mount) -> Result<bool, Fault> {
    if mount.root != Path::new("/") {
        return Ok(true);
    }
    let (Ok(merged), Ok(upper)) = (open_exact(&mount.point), open_exact(&layer.path)) else {
        return Ok(true);
    };
    Ok(match (handle(&merged, &mount.point)?, handle(&upper, &layer.path)?) {
        // The handle of an overlay's root is that of the directory that is written to.
        (Some(merged), Some(upper)) if merged.layer().is_some_and(|layer| layer.upper) => {
            merged.is_same_file(&upper)
        }
        // The overlay shows the birth time of the upper directory as that of its root.
        _ => match (Look::at(&merged, &mount.point)?.id.born, Look::at(&upper, &layer.path)?.id.born) {
            (Some(merged), Some(upper)) => merged == upper,
            _ => true,
        },
    })
}
