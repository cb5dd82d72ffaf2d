//! How far the search for other names of protected files may go.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How far a search has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SearchProgress {
    /// Names looked at so far.
    pub entries: u64,
    /// Directories read so far.
    pub directories: u64,
}

/// Bounds of the searches of the write roots: for hard links to protected files, and for layers of overlays.
///
/// There is no search for links while every protected file has one name, which one look at the file tells. Where one has
/// more, the write roots on the same file system are searched for the others. For layers a write root is searched where
/// a protected object lies on an overlay whose layers cannot be found by their names, as in a container, and the root
/// may lie on the file system of those layers. A search that reaches a bound refuses: what was not searched is not
/// granted.
#[derive(Clone)]
pub struct LinkSearch {
    entries: u64,
    time: Duration,
    progress: Option<Arc<dyn Fn(SearchProgress) + Send + Sync>>,
}

impl Default for LinkSearch {
    /// 100 million names and 60 seconds.
    fn default() -> Self {
        Self { entries: 100_000_000, time: Duration::from_secs(60), progress: None }
    }
}

impl LinkSearch {
    /// Sets how many names may be looked at.
    #[must_use]
    pub fn entries(mut self, entries: u64) -> Self {
        self.entries = entries;
        self
    }

    /// Sets how long a search may take.
    #[must_use]
    pub fn time(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    /// Has a function called while a search goes on, from the threads that search. It should be quick.
    #[must_use]
    pub fn progress(mut self, progress: impl Fn(SearchProgress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(progress));
        self
    }

    pub(super) fn bounds(&self) -> (u64, Duration) {
        (self.entries, self.time)
    }

    pub(super) fn report(&self) -> Option<&(dyn Fn(SearchProgress) + Send + Sync)> {
        self.progress.as_deref()
    }
}

impl fmt::Debug for LinkSearch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkSearch")
            .field("entries", &self.entries)
            .field("time", &self.time)
            .field("progress", &self.progress.is_some())
            .finish()
    }
}
