//! Tests in a virtual machine that has the hardware: `scripts/vm` is the machine.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::command::CommandLine;
use crate::failure::Failure;
use crate::requirements::Requirements;
use crate::stage::{Stage, StageContext};
use crate::stages::core;
use crate::toolchain::is_executable;

/// A machine that cannot start is a failure. `CENOTE_TEST_SKIP=vm` is for machines that cannot have it.
pub(super) const STAGE: Stage = Stage {
    name: "vm",
    about: "tests of the core in a virtual machine with DMA-BUF, cameras and Mesa",
    require,
    run,
    build_ahead: Some(|_| machine("fetch").run()),
};

/// A test program that depends on hardware, and the filter that selects its tests.
struct VmTest {
    program: &'static str,
    filter: &'static str,
}

/// OpenGL comes first: Mesa does not work with the kernel module that is loaded for the others.
const TESTS: [VmTest; 4] = [
    VmTest { program: "gl", filter: "dmabuf::" },
    VmTest { program: "tensor", filter: "dma::" },
    VmTest { program: "dma", filter: "" },
    VmTest { program: "camera", filter: "" },
];

fn machine(command: &str) -> CommandLine {
    CommandLine::new("scripts/vm").arg(command)
}

fn require(needs: &mut Requirements) {
    needs.need("busybox", "busybox-static");
    needs.need("cpio", "cpio");
    needs.need("/sbin/modprobe", "kmod");
    needs.need("xz", "xz-utils");
    needs.need("flock", "util-linux");
    // In the foreground, so that sudo can ask for a password. The stage reports a failure.
    let _ = machine("qemu").command().status();
}

fn run(context: &StageContext) -> Result<(), Failure> {
    machine("fetch").run()?;
    let build = core::core("test")
        .arg("--no-run")
        .args(TESTS.iter().flat_map(|test| ["--test", test.program]));
    build.run()?;
    // Once more, for the names of the programs.
    let messages = build.args(["--quiet", "--message-format", "json"]).output()?;
    let script = context.checkout.logs.join("vm.sh");
    fs::write(&script, vm_script(&context.checkout.root, |name| built_program(&messages, name))?)?;
    machine("run").arg(script.display().to_string()).run()
}

/// The path of a test program that cargo has built, from its messages.
fn built_program(messages: &str, name: &str) -> Option<String> {
    messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).find_map(
        |message| {
            let is_test =
                message["target"]["kind"][0] == "test" && message["target"]["name"] == name;
            if is_test { message["executable"].as_str().map(str::to_string) } else { None }
        },
    )
}

/// The script that runs in the machine.
fn vm_script(root: &Path, program_of: impl Fn(&str) -> Option<String>) -> Result<String, Failure> {
    let mut script = String::from(PREPARE);
    let _ = writeln!(script, "cd '{}/crates/cenote'", root.display());
    for VmTest { program: name, filter } in TESTS {
        let program = program_of(name)
            .filter(|program| is_executable(Path::new(program)))
            .ok_or_else(|| Failure::new(format!("cargo built no program of the test {name}")))?;
        let _ = writeln!(script, "echo '== {name} {filter}'");
        let _ = writeln!(script, "timeout 300 '{program}' --color never {filter} || status=1");
        if name == "gl" {
            // Fences without a device, from a module of the kernel.
            script.push_str("modprobe --dirname \"$VM_KERNEL\" vgem || status=1\n");
        }
    }
    script.push_str("exit \"$status\"\n");
    Ok(script)
}

const PREPARE: &str = r#"# Emulation is slow: fewer random cases.
export CENOTE_TEST_VM=1 TMPDIR=/run PROPTEST_CASES=16
export LD_LIBRARY_PATH="$VM_MESA/usr/lib/x86_64-linux-gnu"
export LIBGL_DRIVERS_PATH="$LD_LIBRARY_PATH/dri" GBM_BACKENDS_PATH="$LD_LIBRARY_PATH/gbm"
export __EGL_VENDOR_LIBRARY_DIRS="$VM_MESA/usr/share/glvnd/egl_vendor.d"
status=0
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_cargos_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"gl"},"executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"kind":["test"],"name":"gl"},"executable":"/t/gl-1"}"#,
            "\nnot a message\n",
        );
        assert_eq!(built_program(messages, "gl").as_deref(), Some("/t/gl-1"));
        assert_eq!(built_program(messages, "dma"), None);
    }

    #[test]
    fn the_script_runs_every_test_and_reports_any_failure() {
        let script = vm_script(Path::new("/src"), |_| Some("/bin/sh".into())).unwrap();
        assert!(script.contains("cd '/src/crates/cenote'\n"), "{script}");
        assert!(
            script.contains("timeout 300 '/bin/sh' --color never dmabuf:: || status=1\n"),
            "{script}"
        );
        let vgem = script.find("vgem").unwrap();
        assert!(script.find("== gl").unwrap() < vgem && vgem < script.find("== dma").unwrap());
        assert!(script.ends_with("exit \"$status\"\n"));
    }

    #[test]
    fn a_program_that_was_not_built_is_an_error() {
        let error = vm_script(Path::new("/src"), |_| None).unwrap_err();
        assert_eq!(error.to_string(), "cargo built no program of the test gl");
    }
}
