//! `bailiwick doctor`: what this host can keep, found by trying it in a real session.

mod survey;
mod text;

use std::collections::BTreeMap;

use bailiwick::{Enforcement, ErrorKind, Kept, Layer, Protection, ResourceLimits, Standing};
use serde::Serialize;

use crate::FAILED;
use crate::args::DoctorArgs;
use crate::failure::{Code, Failure};
use crate::host::Host;
use crate::render::{self, Colour};
use crate::run::runtime;
use crate::signals::Signals;
use crate::state_dir::RunDir;
use survey::{Survey, survey};

/// Something is not kept here that another host would keep.
const INCOMPLETE: u8 = 1;

/// Examines this host. The exit status.
pub(crate) fn doctor(args: &DoctorArgs) -> u8 {
    let told = examine().and_then(|found| {
        let diagnosis = match found {
            Found::Diagnosis(diagnosis) => diagnosis,
            Found::Interrupted(signal) => return Ok(signal.saturating_add(128)),
        };
        if args.json {
            render::json(&*diagnosis)?;
        } else {
            render::out(&diagnosis.text(Colour::of_stdout()))?;
        }
        Ok(if diagnosis.complete { 0 } else { INCOMPLETE })
    });
    told.unwrap_or_else(|failure| {
        if args.json {
            // Whoever reads JSON gets some; should that fail too, the status says enough.
            render::json(&failure).ok();
        } else {
            render::failure(&failure);
        }
        FAILED
    })
}

/// What came of examining.
enum Found {
    Diagnosis(Box<Diagnosis>),
    /// This signal asked us to end before it was known.
    Interrupted(u8),
}

#[derive(Debug, Serialize)]
struct Diagnosis {
    version: &'static str,
    #[serde(flatten)]
    host: Host,
    /// Everything is kept that this version can keep on any host.
    complete: bool,
    protections: Vec<Finding>,
    /// What a run must accept by name here.
    accept: Vec<&'static str>,
    /// The limits that a command has here, as they were read back, and whether the whole run can be limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<ResourceLimits>,
    /// Why there could be no session at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_session: Option<Failure>,
    /// Why `--store` is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_default_store: Option<Failure>,
}

#[derive(Debug, Serialize)]
struct Finding {
    protection: Protection,
    promise: &'static str,
    required: bool,
    /// Whether it is kept here, having been tried.
    kept: bool,
    /// What keeps it; where it is not kept, what could.
    layers: Vec<Layer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
    /// It is not kept here, and would be elsewhere.
    kept_elsewhere: bool,
    /// What to do about it.
    remedies: Vec<String>,
}

fn examine() -> Result<Found, Failure> {
    let runtime = runtime()?;
    let mut signals = runtime
        .block_on(async { Signals::catch() })
        .map_err(|error| Failure::new(Code::Host, "cannot catch signals").cause(error))?;
    let (directory, no_default_store) = match RunDir::make() {
        Ok(directory) => (directory, None),
        Err(failure) => (RunDir::make_apart()?, Some(failure)),
    };
    let store = directory.store();
    let surveyed = runtime.block_on(async {
        tokio::select! {
            biased;
            surveyed = survey(&store) => Ok(surveyed),
            signal = signals.next() => Err(signal),
        }
    });
    drop(directory);
    let mut diagnosis = Diagnosis {
        version: env!("CARGO_PKG_VERSION"),
        host: Host::look(),
        complete: false,
        protections: Vec::new(),
        accept: Vec::new(),
        limits: None,
        no_session: None,
        no_default_store,
    };
    match surveyed {
        Err(signal) => return Ok(Found::Interrupted(signal)),
        Ok(Ok(survey)) => diagnosis.fill(&survey),
        // This host lacks what every session needs: that is an answer, not a failure to find one.
        Ok(Err(error)) if error.kind() == ErrorKind::PlatformUnsupported => {
            diagnosis.no_session = Some(error.into());
        }
        Ok(Err(error)) => return Err(error.into()),
    }
    Ok(Found::Diagnosis(Box::new(diagnosis)))
}

impl Diagnosis {
    fn fill(&mut self, survey: &Survey) {
        self.protections =
            survey.enforcement.protections().iter().map(|kept| finding(kept, &survey.causes)).collect();
        self.limits = Some(survey.limits.clone());
        self.complete = !self.protections.iter().any(|finding| finding.kept_elsewhere);
        self.accept = self
            .protections
            .iter()
            .filter(|finding| finding.required && !finding.kept)
            .map(|finding| finding.protection.name())
            .collect();
    }
}

/// `causes`: why a protection could not be kept before it was accepted.
fn finding(kept: &Kept, causes: &BTreeMap<Protection, String>) -> Finding {
    let protection = kept.protection;
    let possible = Enforcement::possible_layers(protection);
    let required = protection.required_by_default();
    let finding = |is_kept: bool, layers: &[Layer], cause: Option<String>| {
        let kept_elsewhere = !is_kept && !possible.is_empty();
        let mut remedies = Vec::new();
        if !is_kept {
            remedies.push(text::elsewhere(protection, &possible));
            if protection == Protection::HiddenState {
                remedies.push(
                    "or limit what the command may read: `--read-root D` keeps it on every host".to_owned(),
                );
            }
            if required {
                remedies.push(format!("or accept the gap by its name: `--accept {}`", protection.name()));
            }
        }
        Finding {
            protection,
            promise: kept.promise,
            required,
            kept: is_kept,
            layers: layers.to_vec(),
            cause,
            kept_elsewhere,
            remedies,
        }
    };
    match &kept.standing {
        Standing::Kept { layers } => finding(true, layers, None),
        Standing::NotKept { cause, .. } => {
            // Once accepted, the cause is that it was accepted; the first one says what the host lacks.
            let cause = causes.get(&protection).unwrap_or(cause);
            finding(false, &possible, Some(cause.clone()))
        }
        _ => finding(false, &possible, Some("the policy permits it".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn not_kept(protection: Protection) -> Kept {
        let standing = Standing::NotKept { cause: "accepted".to_owned(), accepted: true };
        Kept { protection, promise: protection.promise(), standing }
    }

    /// The exit status hangs on it: a gap of this host is 1, a gap of every host is not.
    #[test]
    fn a_gap_of_this_host_is_told_from_one_of_every_host() {
        let mut elsewhere = Vec::new();
        for protection in Protection::ALL {
            let found = finding(&not_kept(*protection), &BTreeMap::new());
            assert!(!found.kept && !found.remedies.is_empty(), "{protection:?}");
            let accepting = format!("`--accept {}`", protection.name());
            let told = found.remedies.iter().any(|remedy| remedy.contains(&accepting));
            assert_eq!(told, protection.required_by_default(), "{protection:?}: {:?}", found.remedies);
            if !found.kept_elsewhere {
                elsewhere.push(protection.name());
            }
        }
        assert!(elsewhere.is_empty(), "no host keeps {elsewhere:?}");
        let layers = vec![Layer::Keeper];
        let kept = Kept { standing: Standing::Kept { layers }, ..not_kept(Protection::Settlement) };
        let found = finding(&kept, &BTreeMap::new());
        assert!(found.kept && !found.kept_elsewhere && found.remedies.is_empty() && found.cause.is_none());
    }

    #[test]
    fn the_cause_is_the_one_from_before_it_was_accepted() {
        let causes = BTreeMap::from([(Protection::Terminals, "the host lacks it".to_owned())]);
        let found = finding(&not_kept(Protection::Terminals), &causes);
        assert_eq!(found.cause.as_deref(), Some("the host lacks it"));
        assert_eq!(finding(&not_kept(Protection::Signals), &causes).cause.as_deref(), Some("accepted"));
    }
}
