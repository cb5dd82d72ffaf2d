//! What a mount view is built from. It travels in a file in memory: a message would be too small for thousands
//! of roots.

use crate::codec::{Malformed, Reader, Writer};

/// A place in the file system: its canonical path, and what must be found there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Absolute, without links.
    pub path: Vec<u8>,
    /// Major and minor number of the device, as `statx(2)` gives them.
    pub device: (u32, u32),
    /// Inode number.
    pub inode: u64,
}

/// A place that is covered in the view, so that nothing can be read there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hidden {
    /// The place.
    pub place: Place,
    /// It is a directory; else a file.
    pub is_directory: bool,
}

/// What a mount view is built from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The write roots, outermost only.
    pub roots: Vec<Place>,
    /// The session's temporary directory.
    pub temporary: Place,
    /// The directory of the sentinel.
    pub outside: Place,
    /// What is covered.
    pub hidden: Vec<Hidden>,
}

/// First byte of a plan.
const TAG: u8 = 1;

impl Place {
    fn write(&self, writer: &mut Writer) {
        writer.bytes(&self.path).u32(self.device.0).u32(self.device.1).u64(self.inode);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            path: reader.bytes("path")?.to_vec(),
            device: (reader.u32("major")?, reader.u32("minor")?),
            inode: reader.u64("inode")?,
        })
    }
}

impl Plan {
    /// The bytes of the plan.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(TAG);
        writer.list(&self.roots, |w, place| place.write(w));
        self.temporary.write(&mut writer);
        self.outside.write(&mut writer);
        writer.list(&self.hidden, |w, hidden| {
            hidden.place.write(w);
            w.u8(hidden.is_directory.into());
        });
        writer.finish()
    }

    /// Reads a plan.
    ///
    /// # Errors
    /// [`Malformed`] names the field.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.u8("tag")? != TAG {
            return Err(Malformed("tag"));
        }
        let plan = Self {
            roots: reader.list("roots", Place::read)?,
            temporary: Place::read(&mut reader)?,
            outside: Place::read(&mut reader)?,
            hidden: reader.list("hidden", |r| {
                Ok(Hidden { place: Place::read(r)?, is_directory: r.flag("is directory")? })
            })?,
        };
        reader.end()?;
        Ok(plan)
    }
}
