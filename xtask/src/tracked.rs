//! Do tracked files name no registry host and no path of the machine they were written on? Either would be
//! of no use to a reader and tie the project to one place.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::test::Outcome;

/// First labels of host names that serve packages. Written as labels, so that this file names none.
const REGISTRY_LABELS: [&str; 4] = ["registry", "index", "static", "files"];

/// Directories that hold checkouts without being a machine's own: their names are in many texts.
const COMMON: [&str; 9] = ["/", "/tmp", "/var/tmp", "/home", "/root", "/srv", "/opt", "/src", "/usr/src"];

/// Looks through every tracked text file.
pub(crate) fn check(root: &Path) -> Outcome {
    let output = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("run git: {error}"))?;
    if !output.status.success() {
        return Err(format!("git ls-files: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let machine = paths_of_this_machine(root, std::env::var("HOME").ok().as_deref());
    let (mut count, mut faults) = (0_usize, Vec::new());
    for name in output.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = String::from_utf8_lossy(name);
        let path = root.join(&*name);
        // A link is read as its target; a file deleted but not yet committed is not there.
        let text = match fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => {
                fs::read_link(&path).map(|target| target.to_string_lossy().into_owned()).ok()
            }
            Ok(found) if found.is_file() => {
                fs::read(&path).ok().and_then(|bytes| String::from_utf8(bytes).ok())
            }
            _ => None,
        };
        let Some(text) = text else { continue };
        count += 1;
        for (number, line) in text.lines().enumerate() {
            if let Some(fault) = fault(line, &machine) {
                faults.push(format!("  {name}:{}: {fault}", number + 1));
            }
        }
    }
    if count == 0 {
        return Err("git lists no text file here".to_owned());
    }
    if faults.is_empty() {
        return Ok(format!("{count} files name neither"));
    }
    Err(format!("{} lines name a registry or a machine\n{}", faults.len(), faults.join("\n")))
}

/// The checkout, where it lies, and where the toolchain of its user lies.
fn paths_of_this_machine(root: &Path, home: Option<&str>) -> Vec<String> {
    let mut paths = vec![format!("{}/", root.display())];
    let around = root.parent().map(|parent| parent.display().to_string()).unwrap_or_default();
    if !around.is_empty() && !COMMON.contains(&around.as_str()) {
        paths.push(format!("{around}/"));
    }
    if let Some(home) = home.filter(|home| home.len() > 1) {
        paths.extend([".cargo", ".rustup"].map(|name| format!("{home}/{name}")));
    }
    paths
}

fn fault(line: &str, machine: &[String]) -> Option<String> {
    if let Some(path) = machine.iter().find(|path| line.contains(path.as_str())) {
        return Some(format!("a path of this machine, {path}"));
    }
    let hosts = line.split("://").skip(1);
    let is_registry = |rest: &str| {
        let label = rest.split_once('.').map_or("", |(label, _)| label);
        REGISTRY_LABELS.contains(&label)
    };
    hosts.into_iter().find(|rest| is_registry(rest)).map(|_| "the host of a registry".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{fault, paths_of_this_machine};
    use std::path::Path;

    #[test]
    fn hosts() {
        let separator = "://"; // apart, so that these lines pass the check that they test
        for (rest, found) in [
            ("registry.example.org/x", true),
            ("static.example.org", true),
            ("example.org/registry.html", false),
            ("registry", false),
            ("docs.example.org", false),
        ] {
            let line = format!("see https{separator}{rest}");
            assert_eq!(fault(&line, &[]).is_some(), found, "{line}");
        }
        assert_eq!(fault("registry.workspace = true", &[]), None);
    }

    #[test]
    fn machines() {
        let paths = paths_of_this_machine(Path::new("/place/of/mine/project"), Some("/people/me"));
        for (line, found) in [
            ("cd /place/of/mine/project/crates", true),
            ("in /place/of/mine/else", true),
            ("/people/me/.cargo/bin", true),
            ("/people/me/file", false),
            ("/place/of/yours", false),
        ] {
            assert_eq!(fault(line, &paths).is_some(), found, "{line}");
        }
        let paths = paths_of_this_machine(Path::new("/tmp/project"), None);
        assert_eq!(fault("mkdir /tmp/x", &paths), None);
        assert!(fault("cd /tmp/project/crates", &paths).is_some());
    }
}
