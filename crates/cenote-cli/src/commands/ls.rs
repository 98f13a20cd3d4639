//! `cenote ls`

use cenote::{PoolInfo, TopicInfo, namespace_dir, pools, topics};
use serde::Serialize;

use crate::commands::pool::{HolderLine, PoolLine, pool_table};
use crate::commands::socket_dir;
use crate::commands::topic::{Publisher, Subscriber, TopicLine, topic_table};
use crate::failure::Outcome;
use crate::output::{Output, Page, Report, Table};

/// List all topics and pools, their owners, and the processes that are attached
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

impl Args {
    pub(crate) fn run(&self, output: &Output) -> Outcome {
        socket_dir::check_namespace()?;
        let listing = Listing {
            directory: namespace_dir()?.display().to_string(),
            topics: socket_dir::visible(topics())?.iter().map(Topic::new).collect(),
            pools: pools()?.iter().map(Pool::new).collect(),
        };
        socket_dir::warn_of_closed_dirs()?;
        output.report(&listing)
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
    /// The subscribers that wait, if the topic has no publisher.
    waiting: Vec<Subscriber>,
}

#[derive(Debug, Serialize)]
struct Pool {
    #[serde(flatten)]
    line: PoolLine,
    processes: Vec<HolderLine>,
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
        Pool { line: PoolLine::new(pool), processes: processes.map(HolderLine::new).collect() }
    }

    /// The processes other than the owner.
    fn attached(&self) -> impl Iterator<Item = &HolderLine> {
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
        page.table(&table, "no process is attached");
    }
}
