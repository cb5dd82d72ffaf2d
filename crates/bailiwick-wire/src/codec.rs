//! Bytes of a message: little-endian integers, and byte strings with a length before them.

/// A message that does not follow the protocol. Names the field that could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "malformed message: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// Appends fields to a message.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// Starts a message with its tag.
    #[must_use]
    pub fn new(tag: u8) -> Self {
        Self(vec![tag])
    }

    /// Appends one byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    /// Appends a 32-bit number.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Appends a signed 32-bit number.
    pub fn i32(&mut self, value: i32) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Appends a 64-bit number.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Appends a byte string.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        // A body is bounded by `BODY_LIMIT`, so a length always fits; a longer one is refused when read.
        self.u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(value);
        self
    }

    /// Appends a count and then each item.
    pub fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Self, &T)) -> &mut Self {
        self.u32(u32::try_from(items.len()).unwrap_or(u32::MAX));
        for item in items {
            each(self, item);
        }
        self
    }

    /// The finished message.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Takes fields off a message.
#[derive(Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Starts reading, tag first.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn take(&mut self, count: usize, field: &'static str) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.0.split_at_checked(count).ok_or(Malformed(field))?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Malformed> {
        self.take(N, field)?.try_into().map_err(|_| Malformed(field))
    }

    /// Reads one byte.
    ///
    /// # Errors
    /// [`Malformed`] when the message ends before it; so for each of these calls.
    pub fn u8(&mut self, field: &'static str) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.array(field)?))
    }

    /// Reads a byte that is 0 or 1.
    ///
    /// # Errors
    /// [`Malformed`] for any other value.
    pub fn flag(&mut self, field: &'static str) -> Result<bool, Malformed> {
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed(field)),
        }
    }

    /// Reads a 32-bit number.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn u32(&mut self, field: &'static str) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    /// Reads a signed 32-bit number.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn i32(&mut self, field: &'static str) -> Result<i32, Malformed> {
        Ok(i32::from_le_bytes(self.array(field)?))
    }

    /// Reads a 64-bit number.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn u64(&mut self, field: &'static str) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    /// Reads a byte string.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn bytes(&mut self, field: &'static str) -> Result<&'a [u8], Malformed> {
        let length = self.u32(field)?;
        self.take(usize::try_from(length).map_err(|_| Malformed(field))?, field)
    }

    /// Reads a count and then that many items.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn list<T>(
        &mut self,
        field: &'static str,
        mut each: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.u32(field)?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(each(self)?);
        }
        Ok(items)
    }

    /// Ends reading: a message carries nothing after its last field.
    ///
    /// # Errors
    /// [`Malformed`] when bytes are left.
    pub fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("bytes after the last field")) }
    }
}
