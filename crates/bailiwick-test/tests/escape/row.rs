//! What an attempt to escape is: a row of the table.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;

use bailiwick::{Layer, Network, Protection};
use bailiwick_test::boundary::Victim;
use bailiwick_test::pty::Pty;
use bailiwick_test::{Need, case, tool};

use crate::ground::Ground;

/// One attempt, as the table declares it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// Its name, in kebab-case.
    pub(crate) id: &'static str,
    /// The promise that it would break.
    pub(crate) breaks: Protection,
    /// What it tries, in plain words.
    pub(crate) tries: &'static str,
    /// Puts the world in order and says what is to be run.
    pub(crate) attempt: fn(&Ground) -> Attempt,
    /// The errors of which one is the answer. None: the act may say anything, and only the world tells.
    pub(crate) answers: &'static [&'static str],
    /// Each of these layers stops it where the host gives namespaces.
    pub(crate) spaces: &'static [Layer],
    /// The same where it does not; `None` where nothing does, and the session says so.
    pub(crate) plain: Option<&'static [Layer]>,
    /// Layers that stop root besides, and that take nothing from a plain user.
    pub(crate) from_root: &'static [Layer],
    /// The layers of which each stops root, with namespaces and without, where others stop a plain user.
    pub(crate) root_instead: Option<(&'static [Layer], &'static [Layer])>,
    /// Who can do it without confinement.
    pub(crate) actors: Actors,
    /// What a machine may lack for it.
    pub(crate) needs: &'static [Need],
    /// The network policy of the session.
    pub(crate) network: Network,
    /// A setting of the kernel, and the values with which everybody may: then no capability of root's is used.
    pub(crate) everybody_if: Option<(&'static str, &'static [&'static str])>,
    /// What stops it is part of the worker and of the way in which it starts programs, and no image can be built
    /// without.
    pub(crate) is_built_in: bool,
    /// A namespace that no layer has the name of, for it comes with any of them, stops it too.
    pub(crate) comes_along: Option<ComesAlong>,
    /// The caller has handed over what it is done with: a descriptor reaches as far as where it was opened.
    pub(crate) is_given: bool,
}

/// What comes with any namespace of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ComesAlong {
    /// A user namespace, in which a plain user is not the user of the host.
    User,
    /// A name of the machine for the session.
    Names,
}

/// Who can do it without confinement. The host itself refuses the others, which is proven too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Actors {
    /// Root and a plain user.
    All,
    /// Root alone.
    Root,
}

const DENIED: &[&str] = &["EPERM", "EACCES", "EROFS"];

/// An attempt to break a promise.
pub(crate) const fn row(
    id: &'static str,
    breaks: Protection,
    tries: &'static str,
    attempt: fn(&Ground) -> Attempt,
) -> Row {
    Row {
        id,
        breaks,
        tries,
        attempt,
        answers: DENIED,
        spaces: &[],
        plain: None,
        from_root: &[],
        root_instead: None,
        actors: Actors::All,
        needs: &[],
        network: Network::Deny,
        everybody_if: None,
        is_built_in: false,
        comes_along: None,
        is_given: false,
    }
}

impl Row {
    /// The layers of which each stops it, without namespaces and with them.
    pub(crate) const fn by(mut self, plain: &'static [Layer], spaces: &'static [Layer]) -> Self {
        self.plain = Some(plain);
        self.spaces = spaces;
        self
    }

    /// Without namespaces it is not stopped, and the session says so.
    pub(crate) const fn by_namespaces(mut self, spaces: &'static [Layer]) -> Self {
        self.plain = None;
        self.spaces = spaces;
        self
    }

    pub(crate) const fn and_from_root(mut self, layers: &'static [Layer]) -> Self {
        self.from_root = layers;
        self
    }

    /// Root is stopped by other layers, without namespaces and with them.
    pub(crate) const fn root_by(mut self, plain: &'static [Layer], spaces: &'static [Layer]) -> Self {
        self.root_instead = Some((plain, spaces));
        self
    }

    pub(crate) const fn answers(mut self, answers: &'static [&'static str]) -> Self {
        self.answers = answers;
        self
    }

    /// What the act reports tells nothing.
    pub(crate) const fn silent(mut self) -> Self {
        self.answers = &[];
        self
    }

    pub(crate) const fn only(mut self, actors: Actors) -> Self {
        self.actors = actors;
        self
    }

    pub(crate) const fn needs(mut self, needs: &'static [Need]) -> Self {
        self.needs = needs;
        self
    }

    pub(crate) const fn network(mut self, network: Network) -> Self {
        self.network = network;
        self
    }

    pub(crate) const fn breaking(mut self, protection: Protection) -> Self {
        self.breaks = protection;
        self
    }

    /// Everybody may do it if a setting of the kernel has one of these values, and root alone otherwise.
    pub(crate) const fn everybody_if(
        mut self,
        setting: &'static str,
        values: &'static [&'static str],
    ) -> Self {
        self.everybody_if = Some((setting, values));
        self
    }

    /// No image can be built without what stops it.
    pub(crate) const fn built_in(mut self) -> Self {
        self.is_built_in = true;
        self
    }

    pub(crate) const fn along(mut self, namespace: ComesAlong) -> Self {
        self.comes_along = Some(namespace);
        self
    }

    /// Whether it is stopped without its layers too, until no namespace at all is left.
    pub(crate) fn is_stopped_by_what_comes_along(&self, mode: Mode) -> bool {
        mode == Mode::Namespaces
            && match self.comes_along {
                None => false,
                Some(ComesAlong::User) => !case::is_root(),
                Some(ComesAlong::Names) => true,
            }
    }

    /// It happens, for the caller has handed over the descriptor with which it is done.
    pub(crate) const fn given(mut self) -> Self {
        self.is_given = true;
        self
    }

    fn is_for_everybody(&self) -> bool {
        self.everybody_if.is_none_or(|(setting, values)| {
            std::fs::read_to_string(setting).is_ok_and(|value| values.contains(&value.trim()))
        })
    }

    /// Whether this user can do it without confinement.
    pub(crate) fn is_possible(&self) -> bool {
        match self.actors {
            Actors::All => case::is_root() || self.is_for_everybody(),
            Actors::Root => case::is_root(),
        }
    }

    /// The layers of which each stops it, for this user; `None` if none does.
    pub(crate) fn layers(&self, mode: Mode) -> Option<Vec<Layer>> {
        let layers = match mode {
            _ if self.is_given => None,
            Mode::Namespaces => Some(self.spaces),
            Mode::LandlockOnly => self.plain,
        };
        if let Some((plain, spaces)) = self.root_instead.filter(|_| case::is_root()) {
            return Some(if mode == Mode::Namespaces { spaces.to_vec() } else { plain.to_vec() });
        }
        let takes_capabilities = self.everybody_if.is_none() || !self.is_for_everybody();
        let from_root = if case::is_root() && takes_capabilities { self.from_root } else { &[] };
        layers.map(|layers| layers.iter().chain(from_root).copied().collect())
    }

    /// Whether the mode has it: a network of the session's own takes namespaces.
    pub(crate) fn is_in(&self, mode: Mode) -> bool {
        mode == Mode::Namespaces || self.network != Network::Loopback
    }
}

/// What a session rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Every layer, namespaces included.
    Namespaces,
    /// A worker as on a host without namespaces.
    LandlockOnly,
}

/// What is run, and what shows that it happened.
pub(crate) struct Attempt {
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
    /// Whether the program reports as `act` does. Else its exit status tells.
    pub(crate) is_act: bool,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) input: Option<OwnedFd>,
    pub(crate) harm: Harm,
    /// What must live as long as the attempt.
    pub(crate) keeps: Option<Rc<Victim>>,
    pub(crate) terminal: Option<Pty>,
}

/// How the world shows that an act happened.
pub(crate) enum Harm {
    /// It gives its process something and changes nothing else: the report tells.
    Report,
    /// The scene outside the roots differs.
    Scene,
    /// This says so.
    World(Box<dyn Fn() -> bool>),
}

impl Attempt {
    /// An act of the program `act`, which changes the scene.
    pub(crate) fn act<I: IntoIterator<Item = OsString>>(arguments: I) -> Self {
        Attempt {
            program: tool("act").into(),
            arguments: arguments.into_iter().collect(),
            is_act: true,
            directory: None,
            input: None,
            harm: Harm::Scene,
            keeps: None,
            terminal: None,
        }
    }

    /// A script of the shell, which changes the scene.
    pub(crate) fn script(script: impl Into<OsString>) -> Self {
        Attempt {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            is_act: false,
            directory: None,
            input: None,
            harm: Harm::Scene,
            keeps: None,
            terminal: None,
        }
    }

    /// System calls.
    pub(crate) fn calls(calls: &bailiwick_test::calls::Calls) -> Self {
        Self::act(calls.arguments().iter().cloned())
    }

    /// The report alone tells.
    pub(crate) fn reported(mut self) -> Self {
        self.harm = Harm::Report;
        self
    }

    pub(crate) fn shown_by(mut self, harm: impl Fn() -> bool + 'static) -> Self {
        self.harm = Harm::World(Box::new(harm));
        self
    }

    pub(crate) fn within(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    pub(crate) fn input(mut self, input: impl Into<OwnedFd>) -> Self {
        self.input = Some(input.into());
        self
    }
}

/// An act by its words.
macro_rules! act {
    ($($word:expr),+ $(,)?) => { $crate::row::Attempt::act([$(std::ffi::OsString::from($word)),+]) };
}
pub(crate) use act;
