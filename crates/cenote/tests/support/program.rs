//! A test program without libtest's harness: it lists its tests, runs them, and starts itself again as
//! its own child processes.
//!
//! A child is told its role by the environment variable [`ROLE`]: the name of a role, and arguments
//! after it, separated by spaces. Without that variable the program runs its tests.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use super::{OpenResources, SocketDir, abort_on_service_thread_panic};

/// The environment variable with the role of a child process.
pub(crate) const ROLE: &str = "CENOTE_TEST_ROLE";

/// The name of a test, and what it runs.
pub(crate) type Test = (&'static str, fn());

/// The name of a role, and what a child in that role runs with its arguments.
pub(crate) type Role = (&'static str, fn(&[&str]));

/// A table of tests, each named after its function.
#[allow(unused_macros, reason = "each test program uses a part of it")]
macro_rules! tests {
    ($($name:ident)*) => { &[$((stringify!($name), $name as fn())),*] };
}
pub(crate) use tests;

/// A test whose name is made at run time, and which may fail without a panic.
pub(crate) struct NamedTest {
    name: String,
    run: Box<dyn FnOnce() -> Result<(), Failed> + Send>,
}

impl NamedTest {
    pub(crate) fn new(name: impl Into<String>, test: impl FnOnce() + Send + 'static) -> NamedTest {
        NamedTest::fallible(name, move || {
            test();
            Ok(())
        })
    }

    pub(crate) fn fallible(
        name: impl Into<String>,
        test: impl FnOnce() -> Result<(), Failed> + Send + 'static,
    ) -> NamedTest {
        NamedTest { name: name.into(), run: Box::new(test) }
    }
}

/// How a program runs its tests.
pub(crate) struct TestProgram {
    name: &'static str,
    roles: Vec<Role>,
    threads: Option<usize>,
    checks_leaks: bool,
    unavailable: fn(&str) -> Option<&'static str>,
    prepare: fn(&SocketDir),
    finish: fn(),
}

impl TestProgram {
    /// The name becomes part of the name of its socket directory.
    pub(crate) fn new(name: &'static str) -> TestProgram {
        TestProgram {
            name,
            roles: Vec::new(),
            threads: None,
            checks_leaks: false,
            unavailable: |_| None,
            prepare: |_| (),
            finish: || (),
        }
    }

    /// Adds roles for child processes.
    pub(crate) fn roles(mut self, roles: &[Role]) -> TestProgram {
        self.roles.extend(roles);
        self
    }

    /// Runs this many tests at a time, unless `--test-threads` says otherwise.
    pub(crate) fn threads(mut self, count: usize) -> TestProgram {
        self.threads = Some(count);
        self
    }

    /// Runs one test at a time, and fails each that leaves a descriptor or a mapping of shared memory.
    pub(crate) fn check_leaks(mut self) -> TestProgram {
        self.checks_leaks = true;
        self
    }

    /// Ignores the tests for whose names this returns a reason, and prints the reason.
    pub(crate) fn unavailable(mut self, why: fn(&str) -> Option<&'static str>) -> TestProgram {
        self.unavailable = why;
        self
    }

    /// Runs this before the first test, but not before `--list`.
    pub(crate) fn prepare(mut self, prepare: fn(&SocketDir)) -> TestProgram {
        self.prepare = prepare;
        self
    }

    /// Runs this after the last test, before the socket directory is removed.
    pub(crate) fn finish(mut self, finish: fn()) -> TestProgram {
        self.finish = finish;
        self
    }

    /// Runs the tests, or the role that the environment names.
    pub(crate) fn run(self, tests: &[&[Test]]) -> ExitCode {
        let named = |&(name, test): &Test| NamedTest::new(name, test);
        self.run_named(tests.iter().copied().flatten().map(named).collect())
    }

    pub(crate) fn run_named(self, tests: Vec<NamedTest>) -> ExitCode {
        abort_on_service_thread_panic();
        match std::env::var(ROLE) {
            Ok(role) => {
                self.run_role(&role);
                ExitCode::SUCCESS
            }
            Err(_) => self.run_tests(tests),
        }
    }

    fn run_role(&self, role: &str) {
        let words: Vec<&str> = role.split(' ').collect();
        let found = self.roles.iter().find(|(name, _)| *name == words[0]);
        found.unwrap_or_else(|| panic!("no such role: {role}")).1(&words[1..]);
    }

    fn run_tests(&self, tests: Vec<NamedTest>) -> ExitCode {
        let mut args = Arguments::from_args();
        if self.checks_leaks {
            // The resources of another test would count as leaked.
            args.test_threads = Some(1);
        } else if let Some(threads) = self.threads {
            args.test_threads.get_or_insert(threads);
        }
        let dir = SocketDir::new(self.name);
        dir.use_here();
        if !args.list {
            (self.prepare)(&dir);
        }
        let trials = tests.into_iter().map(|test| self.trial(test)).collect();
        let code = libtest_mimic::run(&args, trials).exit_code();
        (self.finish)();
        code
    }

    fn trial(&self, test: NamedTest) -> Trial {
        let NamedTest { name, run } = test;
        let unavailable = (self.unavailable)(&name);
        if let Some(why) = unavailable {
            println!("NOT AVAILABLE: {name}: {why}");
        }
        let checks_leaks = self.checks_leaks;
        Trial::test(name, move || {
            let before = checks_leaks.then(OpenResources::now);
            run()?;
            if let Some(before) = before {
                before.assert_none_leaked();
            }
            Ok(())
        })
        .with_ignored_flag(unavailable.is_some())
    }
}
