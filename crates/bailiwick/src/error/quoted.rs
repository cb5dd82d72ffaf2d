//! Bytes that somebody else chose, made fit for a message or for JSON.

use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use serde::{Serializer, ser::SerializeStruct as _};

/// Characters of a value that a message shows. A longer value is cut there and its length named: the
/// whole of it is in the error's field. The number is a guess at what a person still reads.
const SHOWN: usize = 300;

/// A value between backticks. Control characters, bytes that are not UTF-8 and characters that reorder or
/// hide text are escaped, so that a file name cannot write to the terminal or forge a second line.
pub(crate) struct Quoted<'a>(&'a OsStr);

impl<'a> Quoted<'a> {
    pub(crate) fn new(value: &'a (impl AsRef<OsStr> + ?Sized)) -> Self {
        Self(value.as_ref())
    }
}

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.as_bytes();
        let mut shown = 0;
        f.write_char('`')?;
        for chunk in bytes.utf8_chunks() {
            for character in chunk.valid().chars() {
                if shown == SHOWN {
                    return write!(f, "…` ({} bytes)", bytes.len());
                }
                shown += 1;
                match character {
                    '\\' | '`' => write!(f, "\\{character}")?,
                    '\n' => f.write_str("\\n")?,
                    '\0'..='\x1f' | '\x7f' => write!(f, "\\x{:02x}", u32::from(character))?,
                    _ if character.is_control() || misleads(character) => {
                        write!(f, "\\u{{{:x}}}", u32::from(character))?;
                    }
                    _ => f.write_char(character)?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        f.write_char('`')
    }
}

/// Zero-width, direction-changing and line-separating characters (Unicode Annex 9 and general category Cf).
fn misleads(character: char) -> bool {
    matches!(character,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Writes a path as a JSON string, or, when it is not UTF-8, as `{"text": lossy, "hex": exact bytes}`: the two
/// shapes cannot be taken for each other, so no path can be passed off as another.
pub(crate) fn path_json<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    if let Some(text) = path.to_str() {
        return serializer.serialize_str(text);
    }
    let bytes = path.as_os_str().as_bytes();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut both = serializer.serialize_struct("Path", 2)?;
    both.serialize_field("text", &path.to_string_lossy())?;
    both.serialize_field("hex", &hex)?;
    both.end()
}

/// As [`path_json`], with `null` for none.
#[expect(clippy::ref_option, reason = "the signature is serde's")]
pub(crate) fn optional_path_json<S: Serializer>(
    path: &Option<PathBuf>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => path_json(path, serializer),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(bytes: &[u8]) -> String {
        Quoted::new(OsStr::from_bytes(bytes)).to_string()
    }

    #[test]
    fn shows_plain_text_as_it_is() {
        assert_eq!(quoted("/t/Überhang und mehr".as_bytes()), "`/t/Überhang und mehr`");
        assert_eq!(quoted(b""), "``");
    }

    #[test]
    fn escapes_what_could_deceive() {
        assert_eq!(quoted(b"/t/a\x1b[2Jb\nhint: c"), "`/t/a\\x1b[2Jb\\nhint: c`");
        assert_eq!(quoted(b"/t/\xff\xfe/x"), "`/t/\\xff\\xfe/x`");
        assert_eq!(quoted(b"/t/\\xff"), "`/t/\\\\xff`");
        assert_eq!(quoted(b"/t/W\0x"), "`/t/W\\x00x`");
        assert_eq!(quoted("/t/\u{202e}gpj`.exe".as_bytes()), "`/t/\\u{202e}gpj\\`.exe`");
    }

    #[test]
    fn cuts_what_nobody_reads() {
        let text = quoted(&[b'a'; 5000]);
        assert!(text.ends_with("…` (5000 bytes)"), "{text}");
        assert!(text.chars().count() < SHOWN + 30);
    }

    #[test]
    fn json_keeps_every_byte() {
        #[derive(serde::Serialize)]
        struct Holder<'a>(#[serde(serialize_with = "serialize")] &'a [u8]);
        fn serialize<S: Serializer>(bytes: &&[u8], serializer: S) -> Result<S::Ok, S::Error> {
            path_json(Path::new(OsStr::from_bytes(bytes)), serializer)
        }
        let json = |bytes: &[u8]| serde_json::to_string(&Holder(bytes)).unwrap();
        assert_eq!(json(b"/t/W"), "\"/t/W\"");
        assert_eq!(json(b"/t/\xff"), "{\"text\":\"/t/\u{fffd}\",\"hex\":\"2f742fff\"}");
    }
}
