//! What a run ends with: a table of stages, and a line that counts tests.

use std::time::Duration;

use crate::driver::UNAVAILABLE;
use crate::driver::log::Counts;

/// How a stage ended.
#[derive(Clone, Copy)]
pub(super) enum Outcome {
    Exited(i32),
    Killed { signal: i32 },
    TimedOut { limit: Duration },
    Skipped,
}

#[derive(Default)]
pub(super) struct Summary {
    rows: Vec<String>,
    passed: usize,
    failed: usize,
    skipped: usize,
    failed_stages: usize,
}

impl Summary {
    /// Adds a stage. Returns its result as people read it, and whether it failed.
    pub(super) fn add(
        &mut self,
        stage: &str,
        seconds: u64,
        outcome: Outcome,
        mut counts: Counts,
    ) -> (String, bool) {
        let (mut result, has_failed) = verdict(outcome, counts);
        if has_failed {
            self.failed_stages += 1;
            // A stage that failed without a failed test counts as one.
            counts.failed = counts.failed.max(1);
        }
        self.passed += counts.passed;
        self.failed += counts.failed;
        self.skipped += counts.ignored + usize::from(is_skip(outcome));
        if counts.passed > 0 {
            result += &format!(", {} passed, {} failed", counts.passed, counts.failed);
        }
        self.rows.push(format!("{stage:<10} {seconds:>7}  {result}"));
        (result, has_failed)
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed_stages > 0
    }

    /// The table. Its last line is `N passed, N failed[, N skipped]`.
    pub(super) fn report(&self) -> String {
        let mut report = String::new();
        for (stage, seconds, result) in
            [("stage", "seconds", "result"), ("-----", "-------", "------")]
        {
            report += &format!("{stage:<10} {seconds:>7}  {result}\n");
        }
        report += &self.rows.join("\n");
        report += &format!("\n\n{} passed, {} failed", self.passed, self.failed);
        if self.skipped > 0 {
            report += &format!(", {} skipped", self.skipped);
        }
        report
    }
}

fn is_skip(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Skipped => true,
        Outcome::Exited(code) => code == i32::from(UNAVAILABLE),
        Outcome::Killed { .. } | Outcome::TimedOut { .. } => false,
    }
}

/// The result in words, and whether it is a failure. A failed test outweighs an exit code of 0.
fn verdict(outcome: Outcome, counts: Counts) -> (String, bool) {
    match outcome {
        Outcome::Skipped => ("SKIPPED by CENOTE_TEST_SKIP".into(), false),
        Outcome::TimedOut { limit } => {
            (format!("FAILED: not done after {}m", limit.as_secs() / 60), true)
        }
        Outcome::Killed { signal } => (format!("FAILED: ended by signal {signal}"), true),
        Outcome::Exited(0) if counts.failed > 0 => ("FAILED".into(), true),
        Outcome::Exited(0) => ("ok".into(), false),
        Outcome::Exited(_) if is_skip(outcome) => ("NOT AVAILABLE".into(), false),
        Outcome::Exited(code) => (format!("FAILED: exit code {code}"), true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Counts = Counts { passed: 0, failed: 0, ignored: 0 };

    fn result_of(outcome: Outcome, counts: Counts) -> (String, bool) {
        Summary::default().add("stage", 0, outcome, counts)
    }

    #[test]
    fn results_say_what_happened() {
        let half_an_hour = Duration::from_secs(30 * 60);
        for (outcome, result, has_failed) in [
            (Outcome::Exited(0), "ok", false),
            (Outcome::Exited(1), "FAILED: exit code 1", true),
            (Outcome::Exited(77), "NOT AVAILABLE", false),
            (Outcome::Killed { signal: 9 }, "FAILED: ended by signal 9", true),
            (Outcome::TimedOut { limit: half_an_hour }, "FAILED: not done after 30m", true),
            (Outcome::Skipped, "SKIPPED by CENOTE_TEST_SKIP", false),
        ] {
            assert_eq!(result_of(outcome, NONE), (result.to_string(), has_failed));
        }
    }

    #[test]
    fn a_failed_test_outweighs_exit_code_0() {
        let counts = Counts { passed: 3, failed: 1, ignored: 0 };
        assert_eq!(
            result_of(Outcome::Exited(0), counts),
            ("FAILED, 3 passed, 1 failed".into(), true)
        );
    }

    #[test]
    fn the_report_ends_with_the_counts() {
        let mut summary = Summary::default();
        summary.add("test", 12, Outcome::Exited(0), Counts { passed: 5, failed: 0, ignored: 2 });
        assert!(summary.report().ends_with("\n\n5 passed, 0 failed, 2 skipped"));
        assert!(!summary.has_failed());
        // A stage that fails without a failed test, one that is not available, one that is skipped.
        summary.add("fmt", 1, Outcome::Exited(1), NONE);
        summary.add("cross", 0, Outcome::Exited(77), NONE);
        summary.add("vm", 0, Outcome::Skipped, NONE);
        let report = summary.report();
        assert!(report.ends_with("\n\n5 passed, 1 failed, 4 skipped"), "{report}");
        assert!(report.contains("\ntest            12  ok, 5 passed, 0 failed\n"), "{report}");
        assert!(summary.has_failed());
    }
}
