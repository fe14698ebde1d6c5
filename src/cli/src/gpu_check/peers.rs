//! The last steps of `weir gpu-check`, on two devices: copies of plain and of mapped memory, with and without access, and work
//! that depends on the other device's. Once by the driver alone, once under libweir.so, where memory is short, too.

use super::cuda::{Code, Driver, Kind, Rights};
use super::{collectives, say};
use serde_json::json;
use std::time::Duration;

const BYTES: u64 = 8 << 20;
const WORD: u32 = 0x7E57_0001;

/// Device 0 and device 1 for so long; `pressure`: memory is short.
pub(super) fn run(pressure: bool, time: Duration) -> Result<(), String> {
    let driver = Driver::load()?;
    let failed = |code| format!("the driver returned {code}");
    driver.init().map_err(failed)?;
    let contexts = [driver.context(0).map_err(failed)?, driver.context(1).map_err(failed)?];
    let access = driver.can_access(0, 1).ok();
    say(&json!({"kind": "peer", "access": access, "back": driver.can_access(1, 0).ok()}));
    let mut word = WORD;
    for mapped in [false, true] {
        for shared in [false, true] {
            if shared && (!mapped || access != Some(true)) {
                continue;
            }
            for way in ["cuMemcpyPeer", "cuMemcpyDtoD"] {
                word += 1;
                let tried = (|| -> Result<bool, Code> {
                    driver.set(contexts[0])?;
                    let from = Place::new(&driver, 0, mapped, shared)?;
                    driver.fill(from.at, BYTES / 4, word)?;
                    driver.synchronize()?;
                    driver.set(contexts[1])?;
                    let to = Place::new(&driver, 1, mapped, shared)?;
                    driver.fill(to.at, BYTES / 4, 0)?;
                    driver.synchronize()?;
                    match way {
                        "cuMemcpyPeer" => driver.copy_peer((to.at, contexts[1]), (from.at, contexts[0]), BYTES)?,
                        _ => driver.copy(to.at, from.at, BYTES)?,
                    }
                    driver.synchronize()?;
                    let right = [0, BYTES - 64].map(|offset| driver.words(to.at + offset, 16));
                    Ok(right.iter().all(|words| words.as_ref().is_ok_and(|words| words.iter().all(|one| *one == word))))
                })();
                say(&json!({
                    "kind": "copy", "way": way, "mapped": mapped, "rights": shared,
                    "code": tried.err().unwrap_or(0), "wrong": tried == Ok(false),
                }));
            }
        }
    }
    if pressure {
        collectives::kernels(&driver, contexts);
    }
    collectives::nccl(&driver, contexts, pressure, time / 2);
    for device in [0, 1] {
        driver.release_context(device).map_err(failed)?;
    }
    Ok(())
}

/// Memory of a device, given back at the end.
struct Place<'a> {
    driver: &'a Driver,
    at: u64,
    handle: Option<u64>,
}

impl<'a> Place<'a> {
    fn new(driver: &'a Driver, device: i32, mapped: bool, shared: bool) -> Result<Self, Code> {
        if !mapped {
            return Ok(Self { driver, at: driver.alloc(BYTES)?, handle: None });
        }
        let at = driver.reserve(BYTES)?;
        let handle = driver.create(device, BYTES, Kind { handle_type: 0, rdma: false })?;
        driver.map(at, BYTES, handle)?;
        let devices: &[i32] = if shared { &[0, 1] } else { std::slice::from_ref(&device) };
        driver.set_access(at, BYTES, devices, Rights::ReadWrite)?;
        Ok(Self { driver, at, handle: Some(handle) })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // The process ends soon and all of it with it.
        let _ = match self.handle {
            None => self.driver.free(self.at),
            Some(handle) => (self.driver.unmap(self.at, BYTES))
                .and_then(|()| self.driver.release(handle))
                .and_then(|()| self.driver.unreserve(self.at, BYTES)),
        };
    }
}
