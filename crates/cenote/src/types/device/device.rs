//! The device that computes with a tensor: a tag that is sent with it. No memory is allocated on a device.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// A device: the CPU, or one of the CUDA GPUs.
///
/// ```
/// use cenote::Device;
///
/// assert_eq!(Device::cuda(1).to_string(), "cuda:1");
/// assert_eq!("cuda".parse::<Device>()?, Device::cuda(0));
/// assert!(Device::default().is_cpu());
/// # Ok::<(), cenote::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Device {
    kind: Kind,
    index: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum Kind {
    #[default]
    Cpu,
    Cuda,
}

impl Device {
    /// The CPU.
    #[inline]
    pub const fn cpu() -> Device {
        Device { kind: Kind::Cpu, index: 0 }
    }

    /// The CUDA GPU with this number.
    pub const fn cuda(index: u16) -> Device {
        Device { kind: Kind::Cuda, index }
    }

    /// Whether it is the CPU.
    pub const fn is_cpu(self) -> bool {
        matches!(self.kind, Kind::Cpu)
    }

    /// Whether it is a CUDA GPU.
    pub const fn is_cuda(self) -> bool {
        matches!(self.kind, Kind::Cuda)
    }

    /// The number among devices of its kind.
    pub const fn index(self) -> u16 {
        self.index
    }

    /// The code that stands for it between processes: 0 for the CPU, `0x1_0000 + n` for GPU `n`.
    #[inline]
    pub const fn code(self) -> u32 {
        match self.kind {
            Kind::Cpu => 0,
            Kind::Cuda => 0x1_0000 + self.index as u32,
        }
    }

    /// The device of a code, if there is one.
    pub fn from_code(code: u32) -> Option<Device> {
        match code.checked_sub(0x1_0000) {
            None => (code == 0).then_some(Device::cpu()),
            Some(index) => u16::try_from(index).ok().map(Device::cuda),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Cpu => f.pad("cpu"),
            Kind::Cuda => f.pad(&format!("cuda:{}", self.index)),
        }
    }
}

impl FromStr for Device {
    type Err = Error;

    /// Accepts `cpu`, `cuda` (the first GPU) and `cuda:N`.
    fn from_str(name: &str) -> Result<Self> {
        let unknown = || Error::UnknownDevice { given: name.into() };
        match name.split_once(':') {
            None if name == "cpu" => Ok(Device::cpu()),
            None if name == "cuda" => Ok(Device::cuda(0)),
            Some(("cuda", index)) if index.bytes().all(|byte| byte.is_ascii_digit()) => {
                index.parse().map(Device::cuda).map_err(|_| unknown())
            }
            _ => Err(unknown()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_round_trip() {
        for device in [Device::cpu(), Device::cuda(0), Device::cuda(7), Device::cuda(u16::MAX)] {
            assert_eq!(Device::from_code(device.code()), Some(device));
            assert_eq!(device.to_string().parse::<Device>().unwrap(), device);
        }
        for code in [1, 0xffff, 0x2_0000, u32::MAX] {
            assert_eq!(Device::from_code(code), None);
        }
    }

    #[test]
    fn what_is_no_device_is_refused() {
        for name in
            ["", "gpu", "CPU", "cuda:", "cuda:-1", "cuda:+1", "cuda:65536", "cpu:0", "cuda:0:1"]
        {
            assert!(name.parse::<Device>().is_err(), "{name}");
        }
    }
}
