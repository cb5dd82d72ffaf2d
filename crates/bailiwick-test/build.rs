//! Builds worker images that lack a layer, so that a test can show what that layer is for.

use std::path::PathBuf;

use bailiwick_worker::{BuildError, Recipe};

/// The layers that a host without namespaces gives, as `Recipe::without` calls them.
const LAYERS: [&str; 5] = ["landlock", "scope", "seccomp", "capabilities", "hygiene"];

/// The layers that namespaces give.
const NAMESPACES: [&str; 5] =
    ["mount_view", "pid_namespace", "ipc_namespace", "net_namespace", "socket_broker"];

fn main() -> Result<(), BuildError> {
    for source in bailiwick_worker::sources() {
        println!("cargo::rerun-if-changed={}", source.display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    println!("cargo::rustc-check-cfg=cfg(worker_image)");
    let recipe = Recipe::from_build_script()?;
    // Elsewhere the crate builds all the same, and asking for an image fails the test that does.
    if !recipe.supported() {
        return Ok(());
    }
    let all = || LAYERS.into_iter().chain(NAMESPACES);
    let without = |layers: &mut dyn Iterator<Item = &'static str>| layers.collect::<Vec<_>>();
    let mut wanted = vec![
        ("namespaces".to_owned(), without(&mut NAMESPACES.into_iter())),
        ("layers".to_owned(), without(&mut all())),
    ];
    wanted.extend(all().map(|layer| (layer.to_owned(), vec![layer])));
    // As on a host without namespaces, and one layer less.
    let plain = |layer| NAMESPACES.into_iter().chain([layer]);
    wanted.extend(LAYERS.map(|layer| (format!("namespaces_and_{layer}"), without(&mut plain(layer)))));
    for (name, image) in build(&recipe, wanted)? {
        println!("cargo::rustc-env=BAILIWICK_TEST_IMAGE_WITHOUT_{}={}", name.to_uppercase(), image.display());
    }
    println!("cargo::rustc-cfg=worker_image");
    Ok(())
}

/// Builds all at the same time: each is one run of the compiler, which uses one core.
fn build(
    recipe: &Recipe,
    wanted: Vec<(String, Vec<&'static str>)>,
) -> Result<Vec<(String, PathBuf)>, BuildError> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = wanted
            .into_iter()
            .map(|(name, without)| {
                // A folder each: the images have one name.
                let out_dir = recipe.out_dir.join(format!("without-{name}"));
                let recipe = Recipe { without, out_dir, ..recipe.clone() };
                scope.spawn(move || bailiwick_worker::compile(&recipe).map(|image| (name, image)))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}
