//! Threads that wait for calls. Each serves one at a time, and waits where the command would have waited; there is
//! always another one for the next call.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::Broker;
use super::caller::Caller;
use crate::sys::{self, Alarm, Errno, Questions, Slot};

/// Threads that wait for a call while nothing happens. A second one makes that a call which has to wait starts no
/// thread.
const SPARE: usize = 2;
const STACK: usize = 128 * 1024;

struct Pool {
    broker: Broker,
    /// Numbers of questions that no thread uses: as many threads can still be made.
    free: Mutex<Vec<usize>>,
    /// Threads that wait for a call, or are about to.
    idle: AtomicUsize,
}

/// Serves for as long as there is a process with the filter.
pub(super) fn serve(broker: Broker) -> ! {
    let free = Mutex::new((0..Questions::COUNT).collect());
    let pool: &'static Pool = Box::leak(Box::new(Pool { broker, free, idle: AtomicUsize::new(0) }));
    for _ in 0..SPARE {
        if pool.start().is_err() {
            sys::exit_now(1);
        }
    }
    loop {
        std::thread::park();
    }
}

impl Pool {
    /// Starts a thread.
    ///
    /// # Errors
    /// There are as many as there may be, here or for the user.
    fn start(&'static self) -> Result<(), Errno> {
        let Some(number) = self.free().pop() else { return Err(Errno::AGAIN) };
        self.idle.fetch_add(1, Ordering::SeqCst);
        let builder = std::thread::Builder::new().stack_size(STACK);
        match builder.spawn(move || self.work(number)) {
            Ok(_thread) => Ok(()),
            Err(_) => {
                self.idle.fetch_sub(1, Ordering::SeqCst);
                self.free().push(number);
                Err(Errno::AGAIN)
            }
        }
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a thread does: it counts as idle when it begins.
    fn work(&'static self, number: usize) {
        let mut alarm = None;
        let mut slot = self.broker.questions.at(number);
        loop {
            // Without one it serves what need not wait: the user may have too many just now.
            alarm = alarm.or_else(|| Alarm::make().ok());
            if !self.serve_one(&mut slot, alarm.as_ref()) {
                break;
            }
        }
        self.free().push(number);
    }

    /// Serves one call. Whether the thread goes on.
    fn serve_one(&'static self, slot: &mut Slot<'_>, alarm: Option<&Alarm>) -> bool {
        let received = slot.receive(&self.broker.listener);
        let question = match received {
            Ok(question) => question,
            Err(Errno::INTR) => return true,
            // The caller was killed, or there is nobody left that could call.
            Err(Errno::NOENT) => {
                if sys::is_unused(&self.broker.listener) {
                    sys::exit_now(0);
                }
                return true;
            }
            Err(_) => sys::exit_now(1),
        };
        let others = self.idle.fetch_sub(1, Ordering::SeqCst) - 1;
        // Whoever waits must leave somebody behind for the next call.
        let alarm = alarm.filter(|_| others > 0 || self.start().is_ok());
        let caller = Caller { broker: &self.broker, question: &question, alarm };
        // It may have been killed since, and then waits for nothing.
        sys::may_fail(sys::answer(&self.broker.listener, question.id, caller.connect()));
        slot.clear();
        self.idle.fetch_add(1, Ordering::SeqCst) < SPARE || {
            self.idle.fetch_sub(1, Ordering::SeqCst);
            false
        }
    }
}
