//! One layout, tried in every way.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use bailiwick::guard::{self, ProtectedSet};
use bailiwick::store::StorePlace;
use bailiwick::{Error, Field, Policy, Protection, Session, SessionBuilder};
use bailiwick_test::act::Report;
use landlock::{ABI, AccessFs, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _, Scope};
use serde_json::{Value, json};

use crate::sys;

/// What this kernel has, found by trying.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// Landlock can refuse `truncate`.
    truncate: bool,
    runtime: tokio::runtime::Runtime,
}

/// A store, a root that may reach it, and two names of one file: by the store, and by the root.
#[derive(Debug)]
pub(crate) struct Layout<'a> {
    pub(crate) name: &'a str,
    pub(crate) store: &'a str,
    pub(crate) root: &'a str,
    /// A file of the store.
    pub(crate) kept: &'a str,
    /// The name that a command would use for it.
    pub(crate) reach: &'a str,
}

impl Kernel {
    pub(crate) fn look() -> Self {
        let truncate = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_write(ABI::V3))
            .and_then(Ruleset::create)
            .is_ok();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { truncate, runtime }
    }

    pub(crate) fn facts(&self) -> Value {
        let scopes = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .scope(Scope::Signal)
            .and_then(Ruleset::create)
            .is_ok();
        json!({
            "scene": "facts",
            "truncate": self.truncate,
            "scopes": scopes,
            "statmount": sys::has_statmount(),
            "identifying_handles": sys::has_identifying_handles(),
        })
    }

    /// Tries a layout without a session, which takes its time in an emulated machine.
    pub(crate) fn judge(&self, layout: &Layout<'_>) -> Value {
        json!({
            "scene": layout.name,
            "naive": self.naive(layout),
            "explain": explain(layout),
            "issue": issue(layout).map_or_else(|error| refusal(&error), |_grant| granted()),
        })
    }

    /// Tries a layout in every way there is.
    pub(crate) fn attempt(&self, layout: &Layout<'_>) -> Value {
        let mut line = self.judge(layout);
        line["open"] = self.block_on(open(layout));
        line["replace"] = self.block_on(replace(layout));
        line
    }

    /// A write by the name that the root gives, under the naive wrapper.
    pub(crate) fn naive(&self, layout: &Layout<'_>) -> Value {
        let (report, changed) = world(layout, || self.naively(layout.root, &["open-append", layout.reach]));
        json!({ "done": report.ok, "errno": report.name, "changed": changed })
    }

    /// Runs an act under the naive wrapper.
    pub(crate) fn naively(&self, root: &str, act: &[&str]) -> Report {
        let mut command = Command::new("/bin/naive");
        if !self.truncate {
            command.arg("-2");
        }
        let output = command.args(["-w", root, "--", "/bin/act"]).args(act).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        Report::parse(&output.stdout)
    }

    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }
}

/// Does something, and tells whether the kept file is another one afterwards. Puts it back.
fn world<T>(layout: &Layout<'_>, act: impl FnOnce() -> T) -> (T, bool) {
    let before = fs::read(layout.kept).unwrap();
    let answer = act();
    // A share that is cached has not shown it to others yet.
    fs::File::open(layout.reach).and_then(|file| file.sync_all()).unwrap();
    let changed = fs::read(layout.kept).unwrap() != before;
    if changed {
        // By the name that was written: through an overlay the other one would make a copy.
        fs::write(layout.reach, before).unwrap();
    }
    (answer, changed)
}

/// Whether this kernel's Landlock governs requests to devices (Linux 6.10).
fn governs_devices() -> bool {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::IoctlDev)
        .and_then(Ruleset::create)
        .is_ok()
}

/// A session that accepts what the kernel of this machine does not keep.
pub(crate) fn session(store: &str) -> SessionBuilder {
    let builder = Session::builder(store).accept(Protection::Metadata).accept(Protection::NamedSockets);
    if governs_devices() { builder } else { builder.accept(Protection::Devices) }
}

fn explain(layout: &Layout<'_>) -> Value {
    explanation(session(layout.store).write_root(layout.root))
}

/// What the guard says of a session before it is opened.
pub(crate) fn explanation(session: SessionBuilder) -> Value {
    match session.explain() {
        Ok(verdict) if verdict.granted => granted(),
        Ok(verdict) => {
            let first = verdict.roots.iter().flat_map(|root| &root.refusals).chain(&verdict.refusals).next();
            refusal(first.unwrap())
        }
        Err(error) => refusal(&error),
    }
}

pub(crate) fn issue(layout: &Layout<'_>) -> Result<guard::Grant, Error> {
    let protected = ProtectedSet::around_place(&StorePlace::find(layout.store)?).build()?;
    guard::issue(&Policy { write_roots: vec![layout.root.into()], ..Policy::default() }, protected)
}

/// Opens a session with the root, and writes by the root's name of the file.
pub(crate) async fn open(layout: &Layout<'_>) -> Value {
    match session(layout.store).write_root(layout.root).open().await {
        Ok(session) => used(session, layout).await,
        Err(error) => refusal(&error),
    }
}

/// Opens a session without roots, and gives it the root then.
async fn replace(layout: &Layout<'_>) -> Value {
    let session = match session(layout.store).open().await {
        Ok(session) => session,
        Err(error) => return json!({ "unopened": refusal(&error) }),
    };
    match session.replace_write_roots([PathBuf::from(layout.root)]).await {
        Ok(()) => used(session, layout).await,
        Err(error) => {
            session.close().await.unwrap();
            refusal(&error)
        }
    }
}

async fn used(session: Session, layout: &Layout<'_>) -> Value {
    let before = fs::read(layout.kept).unwrap();
    let inside = Path::new(layout.root).join("written");
    let (made, wrote) = (
        act(&session, &["create", inside.to_str().unwrap()]).await,
        act(&session, &["open-append", layout.reach]).await,
    );
    let changed = fs::read(layout.kept).unwrap() != before;
    let exists = inside.exists();
    session.close().await.unwrap();
    let _absent_if_it_was_refused = fs::remove_file(inside);
    json!({ "granted": true, "made": made.name, "made_exists": exists, "done": wrote.ok, "errno": wrote.name, "changed": changed })
}

/// Runs an act in a session.
pub(crate) async fn act(session: &Session, act: &[&str]) -> Report {
    let output = session.command("/bin/act").args(act).output().await;
    let output = output.unwrap_or_else(|error| panic!("run an act: {}", error.report()));
    assert!(output.status.success(), "{}", output.stderr.text());
    Report::parse(output.stdout.text().as_bytes())
}

pub(crate) fn granted() -> Value {
    json!({ "granted": true })
}

/// A refusal, with the fields that tests look at.
pub(crate) fn refusal(error: &Error) -> Value {
    let mut line = json!({ "granted": false, "code": error.code(), "ran": format!("{:?}", error.ran()) });
    let fields = ["relation", "alias", "lies", "fs_type", "needs", "cause", "limit"];
    for (name, field) in error.fields().iter().filter(|(name, _)| fields.contains(name)) {
        line[*name] = field.as_text().into();
    }
    if let Some(missing) = error.field("protections").and_then(Field::as_list) {
        line["protections"] = missing.iter().filter_map(Field::as_text).collect();
    }
    line["said"] = error.report().to_string().lines().next().unwrap_or_default().into();
    line
}
