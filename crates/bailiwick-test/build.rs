//! Builds the worker image whose layers can be left out, so that a test can show what a layer is for.

use bailiwick_worker::{BuildError, Recipe};

fn main() -> Result<(), BuildError> {
    for source in bailiwick_worker::sources() {
        println!("cargo::rerun-if-changed={}", source.display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    println!("cargo::rustc-check-cfg=cfg(worker_image)");
    let recipe = Recipe { has_switches: true, ..Recipe::from_build_script()? };
    // Elsewhere the crate builds all the same, and asking for an image fails the test that does.
    if recipe.supported() {
        let image = bailiwick_worker::compile(&recipe)?;
        println!("cargo::rustc-env=BAILIWICK_TEST_IMAGE={}", image.display());
        println!("cargo::rustc-cfg=worker_image");
    }
    Ok(())
}
