//! The rules of the repository, and the tests of the program that checks them.

use crate::command::cargo;
use crate::requirements::Requirements;
use crate::stage::Stage;

pub(super) const STAGE: Stage = Stage {
    name: "tidy",
    about: "repository rules, dependencies, links, architecture, shellcheck",
    require,
    run: |context| {
        // Both run, even if the first fails. `scripts/test` builds with the same flags.
        let own_tests = cargo("test --locked --quiet --package xtask").lean_build().run();
        let rules = crate::tidy::check(context);
        own_tests.and(rules)
    },
    build_ahead: None,
};

fn require(needs: &mut Requirements) {
    needs.need("git", "git");
    needs.need("shellcheck", "shellcheck");
}
