//! The diagnosis in words.

use bailiwick::{Layer, Protection, ResourceLimits, SessionLimitStanding};

use super::Diagnosis;
use crate::render::Colour;

impl Diagnosis {
    fn options(&self) -> String {
        self.accept.iter().map(|name| format!(" --accept {name}")).collect()
    }

    pub(super) fn text(&self, colour: Colour) -> String {
        let mut lines = vec![format!("bailiwick {} on {}", self.version, self.host.line()), String::new()];
        if let Some(failure) = &self.no_session {
            lines.push(colour.bad("no session can be opened here"));
            lines.extend(failure.to_string().lines().map(|line| format!("  {line}")));
            return lines.join("\n") + "\n";
        }
        let (kept, not_kept): (Vec<_>, Vec<_>) = self.protections.iter().partition(|finding| finding.kept);
        lines.push(colour.bold("Kept here, having been tried:"));
        for finding in kept {
            let layers: Vec<&str> = finding.layers.iter().map(|layer| layer.name()).collect();
            lines.push(format!(
                "  {} {:<18} by {}",
                colour.good("+"),
                finding.protection.name(),
                layers.join(", ")
            ));
        }
        if !not_kept.is_empty() {
            lines.push(String::new());
            lines.push(colour.bold("Not kept here:"));
        }
        for finding in not_kept {
            let mark = if finding.kept_elsewhere { colour.bad("-") } else { colour.doubtful("~") };
            lines.push(format!("  {mark} {:<18} {}", finding.protection.name(), finding.promise));
            if let Some(cause) = &finding.cause {
                lines.push(format!("      why: {cause}"));
            }
            lines.extend(finding.remedies.iter().map(|remedy| format!("      do:  {remedy}")));
        }
        if let Some(limits) = &self.limits {
            lines.push(String::new());
            lines.push(colour.bold("Limits of a command here, as the kernel tells them inside:"));
            lines.extend(limits_in_words(limits));
        }
        lines.push(String::new());
        if let Some(failure) = &self.no_default_store {
            lines.push(format!("{} `run` needs `--store` here:", colour.doubtful("!")));
            lines.extend(failure.to_string().lines().map(|line| format!("  {line}")));
            lines.push(String::new());
        }
        lines.push(format!("To run here: bailiwick run{} --write-root D -- CMD", self.options()));
        lines.push(if self.complete {
            colour.good("Everything that this version can keep is kept here.")
        } else {
            colour.bad("Another host would keep more: see the lines with `-`.")
        });
        lines.join("\n") + "\n"
    }
}

/// The limits of each process, and whether there can be limits of a whole run.
fn limits_in_words(limits: &ResourceLimits) -> Vec<String> {
    let mut lines: Vec<String> = limits.processes.iter().map(|found| format!("  {found}")).collect();
    for found in &limits.session {
        let option = format!("--{}", found.limit.name());
        lines.push(match &found.standing {
            SessionLimitStanding::Kept { .. } => format!("  {option} can be kept, by a control group"),
            SessionLimitStanding::NotKept { cause } => {
                format!("  {option} cannot be kept: {} ({})", cause.text(), cause.name())
            }
            _ => format!("  {option}: not known"),
        });
    }
    lines
}

/// Where it would be kept.
pub(super) fn elsewhere(protection: Protection, possible: &[Layer]) -> String {
    if possible.is_empty() {
        return "no host keeps it with this version: run as a user of its own, or in a machine or container where \
                nothing outside the write roots matters"
            .to_owned();
    }
    let needs: Vec<&str> = possible.iter().map(|layer| need(protection, *layer)).collect();
    format!("run where there is {}", needs.join(", and "))
}

/// What a host must have for a layer.
fn need(protection: Protection, layer: Layer) -> &'static str {
    match layer {
        Layer::Landlock if protection == Protection::Devices => {
            "Landlock for requests to devices (Linux 6.10, `landlock` among the `lsm=` of the boot line)"
        }
        Layer::Landlock => {
            "Landlock (Linux 6.2, or 5.19 with a mount view, `landlock` among the `lsm=` of the boot line)"
        }
        Layer::Scope => "Landlock with scopes (Linux 6.12, `landlock` among the `lsm=` of the boot line)",
        Layer::Seccomp => "a filter of system calls (CONFIG_SECCOMP_FILTER, and a container that permits it)",
        Layer::Capabilities => "a way to drop capabilities (a container that permits `prctl`)",
        Layer::Hygiene => "`/proc` and `close_range` (Linux 5.9)",
        Layer::Keeper => "a process that takes over orphans (a container that permits `prctl`)",
        Layer::MountView => {
            "mount namespaces (for a plain user together with user namespaces; a container must permit them)"
        }
        Layer::PidNamespace => {
            "pid namespaces (for a plain user together with user namespaces; a container must permit them)"
        }
        Layer::IpcNamespace => {
            "IPC namespaces (for a plain user together with user namespaces; a container must permit them)"
        }
        Layer::NetNamespace => {
            "network namespaces (for a plain user together with user namespaces; a container must permit them)"
        }
        Layer::SocketBroker => {
            "a mount view, and a filter that asks (Linux 5.6, and a container that permits `seccomp`)"
        }
        _ => "a newer bailiwick",
    }
}
