//! What this host says of itself. Information for people: no decision is made by it.

use rustix::io::Errno;
use serde::Serialize;

use crate::sys;

#[derive(Debug, Serialize)]
pub(crate) struct Host {
    /// As `uname -s` says it.
    system: String,
    /// The kernel's release.
    release: String,
    machine: String,
    landlock: Landlock,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
enum Landlock {
    Available { abi: i64 },
    NotEnabled,
    NotBuilt,
    Unknown { cause: String },
}

impl Host {
    pub(crate) fn look() -> Self {
        let name = rustix::system::uname();
        Self {
            system: name.sysname().to_string_lossy().into_owned(),
            release: name.release().to_string_lossy().into_owned(),
            machine: name.machine().to_string_lossy().into_owned(),
            landlock: match sys::landlock_abi() {
                Ok(abi) => Landlock::Available { abi },
                Err(Errno::OPNOTSUPP) => Landlock::NotEnabled,
                Err(Errno::NOSYS) => Landlock::NotBuilt,
                Err(errno) => Landlock::Unknown { cause: std::io::Error::from(errno).to_string() },
            },
        }
    }

    /// One line for a person.
    pub(crate) fn line(&self) -> String {
        let landlock = match &self.landlock {
            Landlock::Available { abi } => format!("Landlock ABI {abi}"),
            Landlock::NotEnabled => {
                "Landlock is built into this kernel but was not enabled at boot".to_owned()
            }
            Landlock::NotBuilt => "no Landlock in this kernel, or a container hides it".to_owned(),
            Landlock::Unknown { cause } => format!("Landlock does not answer ({cause})"),
        };
        format!("{} {} ({}), {landlock}", self.system, self.release, self.machine)
    }
}
