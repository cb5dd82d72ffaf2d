//! Builds the worker image that this crate embeds.

fn main() -> Result<(), bailiwick_worker::BuildError> {
    for source in bailiwick_worker::sources() {
        println!("cargo::rerun-if-changed={}", source.display());
    }
    println!("cargo::rerun-if-env-changed=RUSTC");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    println!("cargo::rustc-check-cfg=cfg(worker_image)");
    let recipe = bailiwick_worker::Recipe::from_build_script()?;
    // Elsewhere the crate builds all the same, and opening a session says what is missing.
    if recipe.supported() {
        let image = bailiwick_worker::compile(&recipe)?;
        println!("cargo::rustc-env=BAILIWICK_WORKER_IMAGE={}", image.display());
        println!("cargo::rustc-cfg=worker_image");
    }
    Ok(())
}
