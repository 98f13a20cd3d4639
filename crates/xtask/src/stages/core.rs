//! Tests of the library.

use crate::command::{CommandLine, cargo};
use crate::failure::Failure;
use crate::requirements::Requirements;
use crate::stage::{Stage, StageContext, require_nothing};
use crate::toolchain::host_triple;

pub(super) const TEST: Stage = Stage {
    name: "test",
    about: "tests and doctests of the core, with all features; unit tests with none",
    require: require_nothing,
    run: run_tests,
    build_ahead: None,
};

pub(super) const GL: Stage = Stage {
    name: "gl",
    about: "tensors in OpenGL buffers and textures of them, with Mesa's software driver",
    require: require_gl,
    run: run_gl,
    build_ahead: None,
};

/// Selects the core as every stage builds it for tests. Another selection of packages can mean other
/// features of their common dependencies, and so another build.
pub(super) fn core(command: &str) -> CommandLine {
    cargo(command).args(["--package", "cenote", "--all-features"])
}

/// The examples of the core, which the test stage has built already.
pub(super) fn build_examples() -> Result<(), Failure> {
    core("build --quiet --locked").arg("--examples").run()
}

fn run_tests(_: &StageContext) -> Result<(), Failure> {
    // Both run, even if the first fails.
    let all_features = core("test --no-fail-fast").run();
    let no_features =
        cargo("test --no-fail-fast --package cenote --lib --no-default-features").run();
    all_features.and(no_features)
}

/// Mesa, which has OpenGL without a GPU.
pub(super) fn require_gl(needs: &mut Requirements) {
    let Ok(host) = host_triple() else { return };
    let folder = format!("/usr/lib/{}", host.replace("-unknown", ""));
    for (library, package) in [
        ("libEGL.so.1", "libegl1"),
        ("libEGL_mesa.so.0", "libegl-mesa0"),
        ("dri/swrast_dri.so", "libgl1-mesa-dri"),
        ("libGLESv2.so.2", "libgles2"),
        ("libgbm.so.1", "libgbm1"),
    ] {
        needs.need(&format!("{folder}/{library}"), package);
    }
}

/// The test program runs itself twice: with buffers that stay mapped, and with a driver that does not
/// support that.
fn run_gl(_: &StageContext) -> Result<(), Failure> {
    core("test").args(["--test", "gl"]).run()
}
