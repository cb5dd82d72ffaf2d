//! Signals that ask this program to end.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Hangs up, interrupts, terminates: their numbers on Linux (`signal(7)`).
const ENDING: [u8; 3] = [1, 2, 15];

/// Waits for the signals that ask this program to end.
#[derive(Debug)]
pub(crate) struct Signals(Vec<(u8, Signal)>);

impl Signals {
    /// From here on these signals no longer end the program by themselves. One that was ignored when the program
    /// was started stays ignored: `nohup` and shells without job control mean it.
    ///
    /// # Errors
    /// The kernel takes no handler.
    pub(crate) fn catch() -> io::Result<Self> {
        let ignored = ignored();
        ENDING
            .into_iter()
            .filter(|number| ignored & (1 << (number - 1)) == 0)
            .map(|number| Ok((number, signal(SignalKind::from_raw(number.into()))?)))
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// The number of the next one.
    pub(crate) async fn next(&mut self) -> u8 {
        std::future::poll_fn(|context| {
            for (number, signal) in &mut self.0 {
                if signal.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(*number);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}

/// The set of signals that this process ignores, as `/proc` shows it; empty where that cannot be read.
fn ignored() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_ignored_set_is_the_kernels() {
        // The runtime of Rust ignores SIGPIPE, which is number 13.
        assert_eq!(super::ignored() & (1 << 12), 1 << 12);
    }
}
