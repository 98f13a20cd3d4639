//! The log of a stage: how many tests ran, and which lines name the trouble.

/// Tests of a stage, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) ignored: usize,
}

/// Sums the lines `test result: ok. 3 passed; 0 failed; 0 ignored` of a log.
pub(super) fn count_tests(log: &str) -> Counts {
    let mut sum = Counts::default();
    for counts in log.lines().filter_map(counts_of) {
        sum.passed += counts.passed;
        sum.failed += counts.failed;
        sum.ignored += counts.ignored;
    }
    sum
}

fn counts_of(line: &str) -> Option<Counts> {
    let (verdict, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    if !verdict.chars().all(|c| c.is_ascii_alphabetic()) {
        return None;
    }
    let mut counts = counts.split("; ");
    let mut next = |name: &str| -> Option<usize> {
        let (number, rest) = counts.next()?.split_once(' ')?;
        if rest.starts_with(name) { number.parse().ok() } else { None }
    };
    Some(Counts { passed: next("passed")?, failed: next("failed")?, ignored: next("ignored")? })
}

/// How many lines a failure shows: from the end, and of those that look like the trouble.
const LAST_LINES: usize = 60;
const TROUBLE_LINES: usize = 40;

/// The end of a log, then the lines that name the trouble, which can be far above it.
pub(super) fn failure_report(path: &str, log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let trouble: Vec<String> = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| is_trouble(line))
        .map(|(index, line)| format!("{}:{line}", index + 1))
        .collect();
    let mut report = vec![format!("---- {path}: the last {LAST_LINES} of {} lines", lines.len())];
    report.extend(last(&lines, LAST_LINES).iter().map(ToString::to_string));
    report.push(format!("---- {path}: lines that look like the trouble"));
    report.extend_from_slice(last(&trouble, TROUBLE_LINES));
    report.push("----".into());
    report.join("\n")
}

fn last<T>(lines: &[T], count: usize) -> &[T] {
    &lines[lines.len().saturating_sub(count)..]
}

fn is_trouble(line: &str) -> bool {
    const ANYWHERE: [&str; 6] = [
        "FAILED",
        "panicked at",
        "ERROR: AddressSanitizer",
        "ERROR: LeakSanitizer",
        "signal: ",
        "assertion",
    ];
    line.starts_with("error")
        || line.starts_with("warning")
        || ANYWHERE.iter().any(|word| line.contains(word))
}

/// What a stage was doing when its time was over: the program that cargo started last, and the tests
/// that libtest reported as slow and whose results are not in the log. Without such a program, the last
/// line of the log.
pub(super) fn unfinished_tests(log: &str) -> Vec<String> {
    let mut program = None;
    let mut slow: Vec<&str> = Vec::new();
    for line in log.lines() {
        let line = line.trim_start();
        if line.starts_with("Running ") || line.starts_with("Doc-tests ") {
            program = Some(line);
            slow.clear();
        }
        let Some(test) = line.strip_prefix("test ") else { continue };
        if let Some((name, _)) = test.split_once(" has been running for over ") {
            slow.push(name);
        } else if let Some((name, _)) = test.split_once(" ... ") {
            slow.retain(|slow| *slow != name.trim_end());
        }
    }
    let program = program.or_else(|| log.lines().last());
    program.into_iter().chain(slow).map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
running 3 tests
test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s
test result: FAILED. 1 passed; 2 failed; 0 ignored
 test result: ok. 9 passed; 0 failed; 0 ignored
test result: broken
";

    #[test]
    fn closing_lines_are_summed() {
        assert_eq!(count_tests(LOG), Counts { passed: 4, failed: 2, ignored: 1 });
        assert_eq!(count_tests(""), Counts::default());
    }

    #[test]
    fn a_hang_is_found_by_the_tests_that_did_not_end() {
        let log = "     Running tests/pool.rs (target/debug/deps/pool-1)
test a has been running for over 60 seconds
     Running tests/topic.rs (target/debug/deps/topic-1)
test b ... ok
test c has been running for over 60 seconds
test d has been running for over 60 seconds
test c    ... FAILED
";
        let program = "Running tests/topic.rs (target/debug/deps/topic-1)";
        assert_eq!(unfinished_tests(log), [program, "d"]);
        assert_eq!(unfinished_tests("first\n   Compiling cenote\n"), ["   Compiling cenote"]);
    }

    #[test]
    fn a_report_shows_trouble_that_is_far_above_the_end() {
        let mut log = String::from("first\nthread 'x' panicked at src/lib.rs:3\n");
        log.push_str(&"quiet\n".repeat(100));
        let report = failure_report("test.log", &log);
        assert!(report.starts_with("---- test.log: the last 60 of 102 lines\nquiet\n"), "{report}");
        assert!(report.contains("\n2:thread 'x' panicked at src/lib.rs:3\n"), "{report}");
        assert_eq!(report.matches("quiet").count(), 60);
    }
}
