//! A child process that uses pools. Each line of its standard input is a command.

use std::time::Duration;

use cenote::{DType, PoolAccess, Tensor, TensorDescriptor, TensorPool, TensorPoolConfig};

use super::peer::{reply, serve};
use super::{all_are, filled, hex, unhex};

/// The pools and tensors of such a child.
#[derive(Default)]
pub(crate) struct PoolUser {
    pub(crate) pools: Vec<TensorPool>,
    pub(crate) tensors: Vec<Tensor>,
}

/// Runs the parent's commands until the end of the input.
pub(crate) fn run() {
    let mut user = PoolUser::default();
    serve(|words| user.answer(words));
}

impl PoolUser {
    pub(crate) fn answer(&mut self, words: &[&str]) -> String {
        match *words {
            ["new", name] => self.make(name, TensorPoolConfig::small()),
            ["slots", name, slots] => {
                let max_slots = slots.parse().unwrap();
                self.make(name, TensorPoolConfig { max_slots, ..TensorPoolConfig::small() })
            }
            ["default", name] => self.make(name, TensorPoolConfig::default()),
            ["group", name, gid] => {
                let access = PoolAccess::Group(gid.parse().unwrap());
                self.make(name, TensorPoolConfig { access, ..TensorPoolConfig::small() })
            }
            ["mode", name, mode] => {
                let access = PoolAccess::Mode(u32::from_str_radix(mode, 8).unwrap());
                self.make(name, TensorPoolConfig { access, ..TensorPoolConfig::small() })
            }
            ["open", name] => reply(TensorPool::open(name).map(|pool| self.pools.push(pool))),
            ["alloc", len, value] => self.alloc(len.parse().unwrap(), value.parse().unwrap()),
            ["import", text] => reply(self.import(text)),
            ["check", value] => {
                let value = value.parse().unwrap();
                self.tensors.iter().all(|tensor| all_are(tensor, value)).to_string()
            }
            ["drop"] => {
                self.tensors.clear();
                "ok".to_owned()
            }
            ["one"] => reply(self.pools[0].alloc(&[10], DType::U8)),
            ["some", len] => reply(self.pools[0].alloc(&[len.parse().unwrap()], DType::U8)),
            ["wait", len] => self.wait(len.parse().unwrap()),
            ["fill", len] => self.fill(len.parse().unwrap()),
            ["attachers"] => self.pools[0].stats().unwrap().attachers.to_string(),
            ["watched"] => self.pools[0].stats().unwrap().socket_watched.to_string(),
            ["trim"] => reply(self.pools[0].trim()),
            ["alive"] => self.pools[0].is_alive().to_string(),
            _ => panic!("{words:?}"),
        }
    }

    /// Waits for a tensor while another thread drops one.
    fn wait(&mut self, len: usize) -> String {
        let dropped = self.tensors.pop();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(150));
                drop(dropped);
            });
            let long = Duration::from_secs(60);
            reply(self.pools[0].alloc_timeout(&[len], DType::U8, long))
        })
    }

    fn make(&mut self, name: &str, config: TensorPoolConfig) -> String {
        reply(TensorPool::new(name, config).map(|pool| self.pools.push(pool)))
    }

    fn alloc(&mut self, len: usize, value: u8) -> String {
        let tensor = filled(&self.pools[0], len, value);
        let text = hex(tensor.descriptor().unwrap().as_bytes());
        self.tensors.push(tensor);
        text
    }

    fn import(&mut self, text: &str) -> cenote::Result<()> {
        let descriptor = TensorDescriptor::from_bytes(&unhex(text))?;
        self.tensors.push(Tensor::from_descriptor(&descriptor)?);
        Ok(())
    }

    /// Allocates and writes until an allocation fails. Returns the count and the error.
    fn fill(&mut self, len: usize) -> String {
        loop {
            match self.pools[0].alloc(&[len], DType::U8) {
                Ok(mut tensor) => {
                    tensor.map_mut().unwrap().as_mut_slice::<u8>().unwrap().fill(1);
                    self.tensors.push(tensor);
                }
                Err(error) => return format!("{} {error}", self.tensors.len()),
            }
        }
    }
}
