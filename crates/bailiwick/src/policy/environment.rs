//! The environment of a command.

use std::ffi::{OsStr, OsString};
use std::fmt;

/// Names and values, each name once, in the order in which the names were first set.
///
/// Any bytes are taken; [`Policy::check_shape`](super::Policy::check_shape) refuses what no process can be given.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Environment(Vec<(OsString, OsString)>);

impl Environment {
    /// An environment without variables.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a variable; a later value replaces an earlier one in its place.
    pub fn set(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> &mut Self {
        let (name, value) = (name.into(), value.into());
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some(entry) => entry.1 = value,
            None => self.0.push((name, value)),
        }
        self
    }

    /// Takes a variable out.
    pub fn remove(&mut self, name: impl AsRef<OsStr>) -> &mut Self {
        self.0.retain(|(known, _)| known != name.as_ref());
        self
    }

    /// The value of a variable.
    #[must_use]
    pub fn get(&self, name: impl AsRef<OsStr>) -> Option<&OsStr> {
        self.0.iter().find(|(known, _)| known == name.as_ref()).map(|(_, value)| value.as_os_str())
    }

    /// The variables, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// How many variables there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<N: Into<OsString>, V: Into<OsString>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(entries: I) -> Self {
        let mut environment = Self::new();
        for (name, value) in entries {
            environment.set(name, value);
        }
        environment
    }
}

/// Names only: a value may be a secret.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_and_the_last_value() {
        let mut environment = Environment::from_iter([("B", "1"), ("A", "2"), ("B", "3")]);
        assert_eq!(
            environment.iter().collect::<Vec<_>>(),
            [(OsStr::new("B"), OsStr::new("3")), (OsStr::new("A"), OsStr::new("2")),]
        );
        environment.remove("B");
        assert_eq!((environment.get("B"), environment.get("A")), (None, Some(OsStr::new("2"))));
    }

    #[test]
    fn debug_shows_no_value() {
        let text = format!("{:?}", Environment::from_iter([("TOKEN", "hunter2")]));
        assert!(text.contains("TOKEN") && !text.contains("hunter2"), "{text}");
    }
}
