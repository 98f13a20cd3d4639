//! The file for a public forge runs every stage, one a job.

use crate::stages::STAGES;
use crate::tidy::files::Files;
use crate::tidy::finding::Finding;

const FILE: &str = ".github/workflows/ci.yml";

pub(super) fn check(files: &Files) -> Vec<Finding> {
    let stages: Vec<&str> = STAGES.iter().map(|stage| stage.name).collect();
    compare(files.get(FILE).unwrap_or_default(), &stages)
}

fn compare(text: &str, stages: &[&str]) -> Vec<Finding> {
    let listed = matrix(text);
    let missing = stages.iter().filter(|stage| !listed.contains(stage));
    let missing =
        missing.map(|stage| Finding::in_file(FILE, format!("the stage {stage} is missing")));
    let unknown = listed.iter().filter(|name| !stages.contains(name));
    let unknown = unknown.map(|name| Finding::in_file(FILE, format!("there is no stage {name}")));
    missing.chain(unknown).collect()
}

/// The names in the list `stage:` of the matrix, one a line: `- name`.
fn matrix(text: &str) -> Vec<&str> {
    let in_matrix = text.lines().map(str::trim).skip_while(|line| *line != "matrix:");
    let after = in_matrix.skip_while(|line| *line != "stage:").skip(1);
    after.map_while(|line| line.strip_prefix("- ")).map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::finding::texts;

    #[test]
    fn the_list_of_stages_must_be_the_same() {
        let text =
            "jobs:\n  stage:\n    matrix:\n  stage:\n    - fmt\n    - old\nsteps:\n  - uses: x\n";
        assert_eq!(
            texts(&compare(text, &["fmt", "new"])),
            [
                ".github/workflows/ci.yml: the stage new is missing",
                ".github/workflows/ci.yml: there is no stage old",
            ]
        );
        assert_eq!(compare("", &["fmt"]).len(), 1);
    }
}
