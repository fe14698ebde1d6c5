//! Work of two devices that depends on each other, as in collectives, while memory is short. A kernel of the second device ends only
//! after one of the first has run, and the thread that launches that one requests memory before it does. Whoever waits for all
//! work before it answers such a request waits for ever: the bound of the step is the watchdog. NCCL does the same, where there is one.

use super::cuda::{Code, Context, Driver, Nccl, Ranks, Stream};
use super::{KERNELS, say};
use serde_json::json;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const WORD: u32 = 0x5EED_0001;
/// Words that NCCL adds up.
const WORDS: u64 = 256 << 10;
const ROUNDS: u32 = 50;

/// A kernel of device 1 waits for one of device 0, which is launched after a request that only a wait could serve.
pub(super) fn kernels(driver: &Driver, [first, second]: [Context; 2]) {
    let began = Instant::now();
    let tried = (|| -> Result<(Option<Code>, bool), Code> {
        let flag = driver.flag()?;
        let place = std::ptr::from_ref(flag) as u64;
        let mut loaded = Vec::new();
        for context in [first, second] {
            driver.set(context)?;
            let (start, wait) = (driver.kernel(KERNELS, c"weir_start")?, driver.kernel(KERNELS, c"weir_await")?);
            let stream = driver.stream()?;
            // Code that comes with its first launch comes now: later it would have to wait for a kernel that waits for it.
            for kernel in [start, wait] {
                driver.launch(kernel, stream, place)?;
            }
            driver.finish(stream)?;
            loaded.push((start, wait, stream));
        }
        let [(start, _, here), (_, wait, there)] = loaded[..] else { return Ok((None, false)) };
        if driver.can_access(1, 0)? {
            driver.enable_access(first)?;
        }
        flag.store(0, Ordering::Release);
        driver.launch(wait, there, place)?;
        driver.set(first)?;
        let room = driver.free_bytes()?;
        let block = driver.alloc(room / 10 * 8)?;
        driver.fill(block, 1024, WORD)?;
        driver.free(block)?;
        let refused = driver.alloc(room / 10 * 7).and_then(|block| driver.free(block)).err();
        driver.launch(start, here, place)?;
        driver.finish(here)?;
        driver.set(second)?;
        driver.finish(there)?;
        driver.set(first)?;
        driver.synchronize()?;
        // Nothing is under way any more.
        let block = driver.alloc(room / 10 * 7)?;
        driver.fill(block, 1024, WORD + 1)?;
        let words = driver.words(block, 1024)?;
        driver.free(block)?;
        Ok((refused, words.iter().any(|word| *word != WORD + 1)))
    })();
    say(&json!({
        "kind": "collective", "way": "kernels", "code": tried.err().unwrap_or(0), "wrong": tried.is_ok_and(|(_, wrong)| wrong),
        "refused": tried.ok().and_then(|(refused, _)| refused), "seconds": began.elapsed().as_secs_f64(),
    }));
}

/// NCCL adds up numbers of both devices, again and again; with `pressure`, device 0 runs out of memory in the first round.
pub(super) fn nccl(driver: &Driver, contexts: [Context; 2], pressure: bool, time: Duration) {
    let Some(nccl) = Nccl::load() else {
        return say(&json!({"kind": "nccl", "missing": "libnccl.so.2 cannot be loaded"}));
    };
    let nccl = &nccl;
    say(&json!({"kind": "nccl", "version": nccl.version()}));
    let (began, ranks) = (Instant::now(), nccl.ranks());
    let failed =
        &|call: &str, code: Code| say(&json!({"kind": "collective", "way": "nccl", "call": call, "code": code}));
    let ranks = match &ranks {
        Ok(ranks) => ranks,
        Err(code) => return failed("ncclCommInitAll", *code),
    };
    let [first, second] = contexts;
    let (go, rounds) = channel::<u32>();
    let (mut count, mut wrong) = (0, false);
    std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            let done = Rank::new(driver, nccl, ranks, 1, second)
                .and_then(|rank| rounds.iter().try_fold(false, |wrong, round| Ok(rank.add(round)? | wrong)));
            // At once: the other rank may wait for this one for ever.
            done.inspect_err(|code| failed("ncclAllReduce on device 1", *code))
        });
        let done = Rank::new(driver, nccl, ranks, 0, first).and_then(|rank| {
            while count < ROUNDS && (count < 2 || began.elapsed() < time) {
                count += 1;
                // The other device's kernel is on its way, or runs and waits for this one's.
                let _ = go.send(count);
                if pressure && count == 1 {
                    let room = driver.free_bytes()?;
                    // A refusal is an answer, too.
                    for part in [8, 7] {
                        let _ = driver.alloc(room / 10 * part).and_then(|block| driver.free(block));
                    }
                }
                wrong |= rank.add(count)?;
            }
            Ok(())
        });
        drop(go);
        if let Err(code) = done {
            failed("ncclAllReduce on device 0", code);
        }
        wrong |= other.join().is_ok_and(|other| other == Ok(true));
    });
    say(&json!({
        "kind": "collective", "way": "nccl", "code": 0, "wrong": wrong, "rounds": count, "seconds": began.elapsed().as_secs_f64(),
    }));
}

/// A rank and its memory.
struct Rank<'a> {
    driver: &'a Driver,
    nccl: &'a Nccl,
    ranks: &'a Ranks,
    number: usize,
    places: (u64, u64),
    stream: Stream,
}

impl<'a> Rank<'a> {
    fn new(
        driver: &'a Driver,
        nccl: &'a Nccl,
        ranks: &'a Ranks,
        number: usize,
        context: Context,
    ) -> Result<Self, Code> {
        driver.set(context)?;
        let places = (driver.alloc(WORDS * 4)?, driver.alloc(WORDS * 4)?);
        Ok(Self { driver, nccl, ranks, number, places, stream: driver.stream()? })
    }

    /// One sum; whether it is wrong.
    fn add(&self, round: u32) -> Result<bool, Code> {
        let of = |rank: u32| round * 10 + rank;
        self.driver.fill(self.places.0, WORDS, of(self.number as u32))?;
        self.driver.fill(self.places.1, WORDS, 0)?;
        // The fills are of another stream.
        self.driver.finish(Stream::LEGACY)?;
        self.nccl.sum(self.ranks, self.number, self.places, WORDS, self.stream)?;
        self.driver.finish(self.stream)?;
        let ends = [0, WORDS * 4 - 64].map(|offset| self.driver.words(self.places.1 + offset, 16));
        let right = |words: &Vec<u32>| words.iter().all(|word| *word == of(0) + of(1));
        Ok(!ends.iter().all(|words| words.as_ref().is_ok_and(right)))
    }
}
