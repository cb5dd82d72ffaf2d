//! The guard, asked from a session: apart from the runtime's threads where it may take long.

use std::sync::Arc;

use super::mark::Mark;
use super::state::Shared;
use crate::error::Error;
use crate::guard::{self, Grant, ProtectedSet, Searched};
use crate::policy::Policy;

/// Issues a grant. A search for hard links takes as long as the roots are large.
pub(super) async fn issue(
    policy: &Policy,
    protected: ProtectedSet,
    searched: Searched,
) -> Result<Grant, Error> {
    let policy = policy.clone();
    apart(move || guard::issue_after(&policy, protected, searched)).await
}

/// Whether a grant still holds. Where it does not, everything that runs under it is marked.
pub(super) async fn check(shared: &Shared, grant: &Arc<Grant>) -> Result<(), Error> {
    let checked = match grant.check_quickly() {
        Ok(true) => Ok(()),
        Ok(false) => {
            let grant = Arc::clone(grant);
            apart(move || grant.check_fully()).await
        }
        Err(error) => Err(error),
    };
    if let Err(error) = &checked
        && let Some(mark) = Mark::of(error)
    {
        shared.mark(&mark);
    }
    checked
}

async fn apart<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(act).await {
        Ok(done) => done,
        // It is never cancelled: only a panic is left.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
