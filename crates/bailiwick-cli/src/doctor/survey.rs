//! Finding out by trying: a real session, opened and thrown away.

use std::collections::BTreeMap;
use std::path::Path;

use bailiwick::{Enforcement, Error, ErrorKind, Field, Protection, ResourceLimits, Session, SessionLimit};

/// Accepting these opens what they close, so they are accepted only where they cannot be kept anyway.
const OPENED_BY_ACCEPTING: [Protection; 2] = [Protection::Terminals, Protection::SharedMemory];

/// What trying has shown.
#[derive(Debug)]
pub(super) struct Survey {
    pub(super) enforcement: Enforcement,
    pub(super) limits: ResourceLimits,
    /// Why a protection that was not accepted at first is not kept.
    pub(super) causes: BTreeMap<Protection, String>,
}

/// Opens a session that requires as little as it must, and takes what the worker found.
pub(super) async fn survey(store: &Path) -> Result<Survey, Error> {
    let mut accepted: Vec<Protection> =
        Protection::ALL.iter().copied().filter(|one| !OPENED_BY_ACCEPTING.contains(one)).collect();
    let mut causes = BTreeMap::new();
    loop {
        // Limits that a survey never meets: whether they can be kept is the question.
        let mut builder = Session::builder(store).memory_max(1 << 40).processes_max(1 << 20);
        for limit in SessionLimit::ALL {
            builder = builder.accept_limit(*limit);
        }
        for protection in &accepted {
            builder = builder.accept(*protection);
        }
        match builder.open().await {
            Ok(session) => {
                let (enforcement, limits) = (session.enforcement().await, session.limits().await);
                session.close().await?;
                return Ok(Survey { enforcement, limits, causes });
            }
            Err(error) => {
                let missing = missing(&error);
                if missing.iter().all(|(protection, _)| accepted.contains(protection)) {
                    return Err(error);
                }
                for (protection, cause) in missing {
                    accepted.push(protection);
                    causes.insert(protection, cause);
                }
            }
        }
    }
}

/// The protections that refused a session, each with its cause.
fn missing(error: &Error) -> Vec<(Protection, String)> {
    let texts = |name: &str| {
        let list = error.field(name).and_then(Field::as_list).unwrap_or_default();
        list.iter().filter_map(Field::as_text)
    };
    if error.kind() != ErrorKind::ProtectionUnavailable {
        return Vec::new();
    }
    texts("protections")
        .zip(texts("causes"))
        .filter_map(|(name, cause)| Some((Protection::from_name(name)?, cause.to_owned())))
        .collect()
}
