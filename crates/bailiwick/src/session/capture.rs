//! Output of a command, kept within a bound.

use std::borrow::Cow;
use std::ops::Deref;

/// What a command wrote to a stream: all of it, or its beginning and its end when it was more than the
/// bound. The number of bytes written is exact in both cases.
///
/// It reads as bytes (`Deref<Target = [u8]>`): the beginning, then the end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Captured {
    bytes: Vec<u8>,
    head: usize,
    total: u64,
}

impl Captured {
    /// How many bytes the command wrote.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Whether bytes were left out between beginning and end.
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.total > self.bytes.len() as u64
    }

    /// The kept beginning. All there is, unless [`truncated`](Self::truncated).
    #[must_use]
    pub fn head(&self) -> &[u8] {
        if self.truncated() { self.bytes.get(..self.head).unwrap_or_default() } else { &self.bytes }
    }

    /// The kept end; empty unless [`truncated`](Self::truncated).
    #[must_use]
    pub fn tail(&self) -> &[u8] {
        if self.truncated() { self.bytes.get(self.head..).unwrap_or_default() } else { &[] }
    }

    /// As text, invalid bytes replaced. A character that was split between two writes is whole here.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }

    /// The bytes that were kept.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl Deref for Captured {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Collects a stream into a [`Captured`].
#[derive(Debug)]
pub(super) struct Capture {
    head: Vec<u8>,
    head_limit: usize,
    tail: Vec<u8>,
    tail_limit: usize,
    total: u64,
}

impl Capture {
    /// Keeps at most `limit` bytes, half of them from the beginning.
    pub(super) fn new(limit: usize) -> Self {
        let tail_limit = limit / 2;
        Self { head: Vec::new(), head_limit: limit - tail_limit, tail: Vec::new(), tail_limit, total: 0 }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = self.head_limit.saturating_sub(self.head.len()).min(bytes.len());
        let (head, rest) = bytes.split_at(room);
        self.head.extend_from_slice(head);
        // Only the last bytes of a long piece can stay.
        let rest = rest.get(rest.len().saturating_sub(self.tail_limit)..).unwrap_or_default();
        self.tail.extend_from_slice(rest);
        // Cut at twice the limit, so that each byte is moved once on average.
        if self.tail.len() > self.tail_limit.saturating_mul(2) {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let excess = self.tail.len().saturating_sub(self.tail_limit);
        self.tail.drain(..excess);
    }

    pub(super) fn finish(mut self) -> Captured {
        self.cut();
        let head = self.head.len();
        self.head.append(&mut self.tail);
        Captured { bytes: self.head, head, total: self.total }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(limit: usize, pieces: &[&[u8]]) -> Captured {
        let mut capture = Capture::new(limit);
        for piece in pieces {
            capture.push(piece);
        }
        capture.finish()
    }

    #[test]
    fn all_is_kept_up_to_the_limit_and_not_a_byte_more() {
        let exact = capture(10, &[b"01234", b"56789"]);
        assert_eq!((&*exact, exact.total(), exact.truncated()), (&b"0123456789"[..], 10, false));
        assert_eq!((exact.head(), exact.tail()), (&b"0123456789"[..], &b""[..]));
        let over = capture(10, &[b"01234", b"567890"]);
        assert_eq!((&*over, over.total(), over.truncated()), (&b"0123467890"[..], 11, true));
        assert_eq!((over.head(), over.tail()), (&b"01234"[..], &b"67890"[..]));
    }

    #[test]
    fn memory_stays_within_three_halves_of_the_limit_whatever_the_pieces() {
        for size in [1_usize, 3, 100, 5000] {
            let mut capture = Capture::new(1000);
            let piece: Vec<u8> = (0..size).map(|i| b'a' + u8::try_from(i % 26).unwrap()).collect();
            for _ in 0..3000 {
                capture.push(&piece);
                assert!(capture.head.len() + capture.tail.len() <= 1500 + 500, "{size}");
            }
            let captured = capture.finish();
            assert_eq!(captured.total(), 3000 * size as u64);
            assert_eq!(captured.len(), 1000);
        }
    }

    #[test]
    fn a_character_split_between_writes_is_joined() {
        assert_eq!(capture(100, &[b"\xe2", b"\x82\xac"]).text(), "\u{20ac}");
        assert_eq!(&*capture(100, &[b"\xff\xfe"]), b"\xff\xfe");
    }
}
