//! What the kernel says of the pages at an address.

#![allow(dead_code, reason = "each test uses its part")]

/// The mapping that an address lies in.
#[derive(Debug)]
pub(crate) struct Mapping {
    lines: Vec<String>,
}

impl Mapping {
    /// None where the kernel does not tell: under an emulator, and on other systems.
    pub(crate) fn of<T>(address: *const T) -> Option<Mapping> {
        let emulated = std::env::var_os("CENOTE_TEST_EMULATED").is_some();
        let told = std::fs::read_to_string("/proc/self/smaps").ok();
        let Some(text) = told.filter(|_| !emulated) else {
            println!("NOT AVAILABLE: what the kernel says of a mapping");
            return None;
        };
        let mut lines = text.lines().skip_while(|line| !contains(line, address.addr()));
        lines.next().expect("the address is mapped");
        let lines = lines.take_while(|line| range(line).is_none()).map(str::to_owned);
        Some(Mapping { lines: lines.collect() })
    }

    fn field(&self, name: &str) -> &str {
        self.lines.iter().find_map(|line| line.strip_prefix(name)).unwrap()
    }

    /// Whether the kernel was asked for huge pages.
    pub(crate) fn wants_huge_pages(&self) -> bool {
        self.has_flag("hg")
    }

    /// Whether its pages are locked in memory.
    pub(crate) fn is_locked(&self) -> bool {
        self.has_flag("lo")
    }

    fn has_flag(&self, flag: &str) -> bool {
        self.field("VmFlags:").split_whitespace().any(|word| word == flag)
    }

    /// Bytes of it that have pages.
    pub(crate) fn resident(&self) -> usize {
        let kib: usize = self.field("Rss:").trim().trim_end_matches(" kB").parse().unwrap();
        kib << 10
    }
}

/// The addresses that a mapping's first line begins with.
fn range(line: &str) -> Option<(usize, usize)> {
    let (from, to) = line.split(' ').next()?.split_once('-')?;
    Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
}

fn contains(line: &str, address: usize) -> bool {
    range(line).is_some_and(|(from, to)| (from..to).contains(&address))
}
