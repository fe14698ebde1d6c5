//! Contexts that come and go with what was allocated in them.

use crate::actor::{Actor, Block, Context, Held};
use crate::driver::cu::*;
use crate::op::{Op, What};
use std::ptr::null_mut;

impl Actor {
    pub(crate) fn context_op(&mut self, op: Op) -> bool {
        let at = 1 + op.slot as usize % (self.contexts.len() - 1);
        match op.what {
            What::CtxCreate => {
                if self.contexts[at].is_some() {
                    return false;
                }
                let (mut ctx, mut popped) = (null_mut(), null_mut());
                self.must("cuCtxCreate", cuCtxCreate_v2(&raw mut ctx, 0, 0));
                self.contexts[at] = Some(Context::furnish(ctx));
                self.must("cuCtxPopCurrent", cuCtxPopCurrent_v2(&raw mut popped));
                self.enter(at);
                true
            }
            What::CtxUse => {
                let at = op.slot as usize % self.contexts.len();
                let there = self.contexts[at].is_some();
                if there {
                    self.enter(at);
                }
                there
            }
            What::PrimaryReset | What::PrimaryRelease => {
                if self.holding() {
                    return false;
                }
                self.end_primary(op.what == What::PrimaryReset);
                true
            }
            _ => {
                let Some(context) = self.contexts[at] else { return false };
                self.enter(at);
                match op.what {
                    What::CtxAttach => {
                        let mut same = null_mut();
                        self.must("cuCtxAttach", cuCtxAttach(&raw mut same, 0));
                        self.contexts[at] = Some(Context { users: context.users + 1, ..context });
                    }
                    What::CtxDetach if context.users > 1 => {
                        self.must("cuCtxDetach", cuCtxDetach(context.ctx));
                        self.contexts[at] = Some(Context { users: context.users - 1, ..context });
                    }
                    What::CtxDetach => self.end(at, |this| this.must("cuCtxDetach", cuCtxDetach(context.ctx))),
                    _ => self.end(at, |this| this.must("cuCtxDestroy", cuCtxDestroy_v2(context.ctx))),
                }
                true
            }
        }
    }

    /// What belongs to no context is given back before one ends: in stream order, with work before it.
    fn before_end(&mut self, at: usize) {
        self.destroy_graphs_of(at);
        for slot in 0..self.blocks.len() {
            let here = |block: &Block| block.ctx == at && (matches!(block.held, Held::Ordered(_)) || block.lent);
            if self.blocks[slot].as_ref().is_some_and(here) {
                self.free(slot, true);
            }
        }
        self.enter(at);
    }

    /// What a context takes with it is gone.
    fn after_end(&mut self, at: usize) {
        for slot in &mut self.blocks {
            if slot.as_ref().is_some_and(|block| block.ctx == at && !matches!(block.held, Held::Handle { .. })) {
                *slot = None;
            }
        }
    }

    fn end(&mut self, at: usize, call: impl FnOnce(&Self)) {
        self.before_end(at);
        call(self);
        self.after_end(at);
        self.contexts[at] = None;
        self.enter(0);
    }

    /// The primary context ends, and begins again.
    fn end_primary(&mut self, reset: bool) {
        self.enter(0);
        self.before_end(0);
        self.forget_event();
        let mut ctx = self.context(0).ctx;
        if reset {
            self.must("cuDevicePrimaryCtxReset", cuDevicePrimaryCtxReset_v2(0));
        } else {
            self.must("cuDevicePrimaryCtxRelease", cuDevicePrimaryCtxRelease_v2(0));
            self.must("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&raw mut ctx, 0));
        }
        self.after_end(0);
        self.must("cuCtxSetCurrent", cuCtxSetCurrent(ctx));
        self.contexts[0] = Some(Context::furnish(ctx));
        self.current = 0;
        self.make_event();
    }
}
