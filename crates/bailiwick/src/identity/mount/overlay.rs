//! Layers of an overlay, from its options.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use super::text::unescape;
use crate::error::Quoted;

/// Where the layers of an overlay lie, in the words of who mounted it.
///
/// # Security
/// These are words, not objects. A relative path began at the mounter's working directory; a path may name something
/// else since a rename; layers given as descriptors of detached mounts are shown by a path within their file system.
/// A path that leads nowhere proves nothing. One that leads somewhere is the upper layer if that directory and the root
/// of the overlay have one file handle ([`super::FileHandle`]); for a lower layer there is no such proof while there
/// is an upper one.
///
/// # Source
/// `fs/overlayfs/params.c` of Linux 6.18 and measurements on it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OverlayLayers {
    /// The layer that takes what is written.
    pub(crate) upper: Option<PathBuf>,
    /// Where files are prepared for it; on the same file system.
    pub(crate) work: Option<PathBuf>,
    /// The layers below, the highest first, those that hold data alone last.
    pub(crate) lowers: Vec<PathBuf>,
    /// What an upper or a work directory is called if it was given as a descriptor: then a backslash in its name
    /// stands for itself and not for the next character, and the text does not tell which. To be compared where it
    /// exists, and to be passed over where not.
    pub(crate) also: Vec<PathBuf>,
}

/// Options that are not those of an overlay.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the layers of an overlay cannot be told from its options, {what}: {}", Quoted::new(.options))]
pub(crate) struct MalformedOptions {
    what: &'static str,
    options: OsString,
}

/// Reads the layers from an overlay's [options](super::Mount::options).
///
/// # Errors
/// No lower layer, an empty path, the same single layer twice, or an escape without an end: a text that no kernel
/// writes for an overlay, so that nothing can be concluded from it.
pub(crate) fn overlay_layers(options: &[u8]) -> Result<OverlayLayers, MalformedOptions> {
    let wrong = |what| MalformedOptions { what, options: OsString::from_vec(options.to_vec()) };
    let mut layers = OverlayLayers::default();
    let mut listed = false;
    for option in options.split(|byte| *byte == b',') {
        let Some(equals) = option.iter().position(|byte| *byte == b'=') else { continue };
        let (key, value) = (&option[..equals], &option[equals + 1..]);
        match key {
            b"lowerdir" if listed || !layers.lowers.is_empty() => {
                return Err(wrong("it has two lists of lower layers"));
            }
            b"lowerdir" => {
                listed = true;
                layers.lowers = lower_layers(value).ok_or(wrong("the lower layers are badly written"))?;
            }
            b"lowerdir+" | b"datadir+" if listed => return Err(wrong("it has two lists of lower layers")),
            b"lowerdir+" | b"datadir+" => {
                // Taken as it is: a list of one needs no escapes of its own.
                let literal = unescape(value).filter(|path| !path.is_empty());
                layers.lowers.push(path(literal.ok_or(wrong("a lower layer is badly written"))?));
            }
            b"upperdir" | b"workdir" => {
                let literal = unescape(value).ok_or(wrong("a layer is badly escaped"))?;
                let meant = without_backslashes(&literal).filter(|path| !path.is_empty());
                let meant = meant.ok_or(wrong("the upper layer or its work directory is badly written"))?;
                if meant != literal {
                    layers.also.push(path(literal));
                }
                let place = if key == b"upperdir" { &mut layers.upper } else { &mut layers.work };
                if place.replace(path(meant)).is_some() {
                    return Err(wrong("it names the upper layer or its work directory twice"));
                }
            }
            _ => {}
        }
    }
    if layers.lowers.is_empty() {
        return Err(wrong("it names no lower layer"));
    }
    Ok(layers)
}

/// The paths of a `lowerdir` list. Within the kernel's octal escapes it is the mounter's text: `:` between layers,
/// `::` before one that holds data alone, `\` before a character that stands for itself.
fn lower_layers(value: &[u8]) -> Option<Vec<PathBuf>> {
    // The first kernels with an own list (early 6.5) showed names without the mounter's escapes and wrote a colon in
    // one in octal, which no other kernel does.
    if value.windows(4).any(|window| window == br"\072") {
        let layers =
            split_layers(value, |rest| rest.iter().position(|byte| *byte == b':').unwrap_or(rest.len()));
        return layers?.into_iter().map(|layer| unescape(layer).map(path)).collect();
    }
    let text = unescape(value)?;
    let layers = split_layers(&text, |rest| {
        let mut at = 0;
        while at < rest.len() && rest[at] != b':' {
            at += if rest[at] == b'\\' { 2 } else { 1 };
        }
        at.min(rest.len())
    });
    layers?.into_iter().map(|layer| without_backslashes(layer).map(path)).collect()
}

/// Cuts a list at one colon or two; `end` finds the end of its first layer.
fn split_layers(list: &[u8], end: impl Fn(&[u8]) -> usize) -> Option<Vec<&[u8]>> {
    let mut layers = Vec::new();
    let mut rest = list;
    loop {
        let (layer, tail) = rest.split_at(end(rest));
        if layer.is_empty() {
            return None;
        }
        layers.push(layer);
        rest = match tail {
            [] => return Some(layers),
            [b':', b':', tail @ ..] | [b':', tail @ ..] => tail,
            _ => return None,
        };
    }
}

/// Takes away each backslash and keeps what follows it. `None` if nothing follows.
fn without_backslashes(text: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        plain.push(if *byte == b'\\' { *bytes.next()? } else { *byte });
    }
    Some(plain)
}

fn path(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}
