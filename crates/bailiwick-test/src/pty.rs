//! A pseudo-terminal, for commands that are given one as their standard streams.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::{process::GENEROUS, wait_until};

/// A pseudo-terminal whose main side is read all the time, so that nobody waits for room in it.
#[derive(Debug)]
pub struct Pty {
    main: File,
    /// Without it the reader would see the end as soon as one command has ended.
    _held: OwnedFd,
    name: String,
    read: Arc<Mutex<Vec<u8>>>,
}

impl Pty {
    /// Makes one.
    ///
    /// # Panics
    ///
    /// If the host gives none.
    #[must_use]
    pub fn new() -> Self {
        let made = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).and_then(|main| {
            grantpt(&main)?;
            unlockpt(&main)?;
            Ok((ptsname(&main, Vec::new())?, main))
        });
        let (name, main) = made.unwrap_or_else(|error| panic!("make a pseudo-terminal: {error}"));
        let main = File::from(main);
        let read = Arc::new(Mutex::new(Vec::new()));
        let name = name.to_string_lossy().into_owned();
        let pty = Self { _held: open(&name), name, read: Arc::clone(&read), main };
        let mut reader = pty.main.try_clone().unwrap_or_else(|error| panic!("duplicate a terminal: {error}"));
        std::thread::spawn(move || {
            let mut room = [0_u8; 4096];
            // The end of a terminal is an I/O error once all subordinate sides are closed.
            while let Ok(length) = reader.read(&mut room) {
                let mut read = read.lock().unwrap_or_else(PoisonError::into_inner);
                read.extend_from_slice(&room[..length]);
            }
        });
        pty
    }

    /// Path of the subordinate side.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Opens the subordinate side.
    ///
    /// # Panics
    ///
    /// If that fails.
    #[must_use]
    pub fn subordinate(&self) -> OwnedFd {
        open(&self.name)
    }

    /// Types something.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub fn type_in(&mut self, text: &str) {
        self.main.write_all(text.as_bytes()).unwrap_or_else(|error| panic!("type into a terminal: {error}"));
    }

    /// What was written to it so far, carriage returns left out.
    #[must_use]
    pub fn text(&self) -> String {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&read).replace('\r', "")
    }

    /// Waits until what was written holds `text`.
    ///
    /// # Panics
    ///
    /// If it does not come.
    #[track_caller]
    pub fn expect(&self, text: &str) {
        let came = wait_until(GENEROUS, || self.text().contains(text));
        assert!(came, "`{text}` does not appear on the terminal; there is: {:?}", self.text());
    }
}

fn open(name: &str) -> OwnedFd {
    rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
        .unwrap_or_else(|error| panic!("open {name}: {error}"))
}

impl Default for Pty {
    fn default() -> Self {
        Self::new()
    }
}
