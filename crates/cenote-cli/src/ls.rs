//! `cenote ls`

use std::path::Path;
use std::{env, fs, io};

use cenote::{DIR_ENV, NAMESPACE_ENV, PoolInfo, TopicInfo, namespace_dir, pools, topics};
use serde::Serialize;

use crate::failure::{self, Failure, Outcome};
use crate::output::{Output, Page, Report, Table};
use crate::pool::{Attached, PoolLine, pool_table};
use crate::topic::{Publisher, Subscriber, TopicLine, topic_table};

/// All topics and pools, who owns them and who is attached
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        check_namespace()?;
        let listing = Listing {
            directory: namespace_dir()?.display().to_string(),
            topics: visible(topics())?.iter().map(Topic::new).collect(),
            pools: pools()?.iter().map(Pool::new).collect(),
        };
        note_closed()?;
        output.report(&listing)
    }
}

/// An error if a namespace was named that is not there. A directory that was named and is not there is no
/// error, for whoever comes first makes it; but it may have been meant to be another.
pub(crate) fn check_namespace() -> Outcome {
    let dir = namespace_dir()?;
    let named = env::var_os(NAMESPACE_ENV).is_some();
    match dir.try_exists() {
        Ok(false) if named => {
            let text = format!("there is no namespace {}: {NAMESPACE_ENV} names it", dir.display());
            Err(Failure::NotFound(text))
        }
        Ok(false) => {
            warn_of_missing_root(&dir);
            Ok(())
        }
        // What else may be wrong with it is found out when it is read.
        _ => Ok(()),
    }
}

/// What this user may see of a kind of thing, be it nothing: the other kind may be there to be seen.
pub(crate) fn visible<T>(listed: cenote::Result<Vec<T>>) -> Outcome<Vec<T>> {
    match listed.map_err(Failure::from) {
        Err(Failure::NoPermission(_)) => Ok(Vec::new()),
        listed => listed,
    }
}

/// Says what is closed to this user, and so not listed.
pub(crate) fn note_closed() -> Outcome {
    let dir = namespace_dir()?;
    for dir in ["topics", "pools"].map(|kind| dir.join(kind)) {
        let closed = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        if fs::read_dir(&dir).is_err_and(|error| closed(&error)) {
            let dir = dir.display();
            failure::say(&format!("{dir} is closed to this user: what is in it is not listed"));
        }
    }
    Ok(())
}

fn warn_of_missing_root(namespace: &Path) {
    let named = env::var_os(DIR_ENV).is_some();
    let root = namespace.parent().filter(|root| matches!(root.try_exists(), Ok(false)));
    if let Some(root) = root.filter(|_| named) {
        failure::say(&format!("there is no directory {}: {DIR_ENV} names it", root.display()));
    }
}

#[derive(Debug, Serialize)]
struct Listing {
    directory: String,
    topics: Vec<Topic>,
    pools: Vec<Pool>,
}

#[derive(Debug, Serialize)]
struct Topic {
    #[serde(flatten)]
    line: TopicLine,
    published_by: Vec<Publisher>,
    /// Where nobody publishes: who waits.
    waiting: Vec<Subscriber>,
}

#[derive(Debug, Serialize)]
struct Pool {
    #[serde(flatten)]
    line: PoolLine,
    processes: Vec<Attached>,
}

impl Topic {
    fn new(topic: &TopicInfo) -> Topic {
        let published_by = topic.publishers.iter().map(Publisher::new).collect();
        let waiting = topic.waiting.iter().map(Subscriber::new).collect();
        Topic { line: TopicLine::new(topic), published_by, waiting }
    }
}

impl Pool {
    fn new(pool: &PoolInfo) -> Pool {
        let processes = pool.account.iter().flat_map(|account| &account.processes);
        Pool { line: PoolLine::new(pool), processes: processes.map(Attached::new).collect() }
    }

    fn attached(&self) -> impl Iterator<Item = &Attached> {
        self.processes.iter().filter(|process| process.pid != self.line.pid)
    }
}

impl Report for Listing {
    fn write(&self, page: &mut Page) {
        page.aside(&self.directory);
        page.table(&topic_table(self.topics.iter().map(|topic| &topic.line)), "no topics");
        page.line("");
        page.table(&pool_table(self.pools.iter().map(|pool| &pool.line)), "no pools");
        let mut table = Table::new(&[">PID", "PROCESS", "ATTACHED TO", ">OF PID", ">SLOTS"]);
        for pool in &self.pools {
            for process in pool.attached() {
                table.row([
                    process.pid.to_string(),
                    process.program.clone(),
                    pool.line.name.clone(),
                    pool.line.pid.to_string(),
                    process.slots.to_string(),
                ]);
            }
        }
        page.line("");
        page.table(&table, "nobody is attached");
    }
}
