//! All rules, by family.

use crate::rule::Rule;

mod array;
mod capture;
mod context;
mod copy;
mod device;
mod entry;
mod event;
mod graph;
mod graph_memory;
mod host;
mod ipc;
mod launch;
mod limits;
mod memory;
mod module;
mod nic;
mod nvml;
mod peer;
mod pointer;
mod pool;
mod pool_reuse;
mod stream;
mod stream_default;
mod switches;
mod texture;
mod touch;
mod unrequested;
mod violation;
mod vmm;
mod vmm_access;
mod vmm_share;

/// Every rule, in the order of the table.
pub fn all() -> Vec<Rule> {
    let families: [&[Rule]; 31] = [
        device::RULES,
        entry::RULES,
        context::RULES,
        memory::RULES,
        host::RULES,
        copy::RULES,
        array::RULES,
        texture::RULES,
        pointer::RULES,
        vmm::RULES,
        vmm_access::RULES,
        vmm_share::RULES,
        pool::RULES,
        pool_reuse::RULES,
        ipc::RULES,
        stream::RULES,
        stream_default::RULES,
        event::RULES,
        capture::RULES,
        graph::RULES,
        graph_memory::RULES,
        module::RULES,
        launch::RULES,
        peer::RULES,
        nvml::RULES,
        switches::RULES,
        limits::RULES,
        unrequested::RULES,
        nic::RULES,
        touch::RULES,
        violation::RULES,
    ];
    families.concat()
}

/// The rule with this id.
pub fn find(id: &str) -> Option<Rule> {
    all().into_iter().find(|r| r.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use weir_cuda::FUNCTIONS;

    #[test]
    fn every_rule_has_its_own_id_and_a_sentence() {
        let rules = all();
        let ids: HashSet<_> = rules.iter().map(|r| r.id).collect();
        assert_eq!(ids.len(), rules.len());
        for r in &rules {
            assert!(r.says.ends_with('.') && r.says.len() > 15, "{}: {}", r.id, r.says);
            assert!(r.id.contains('.'), "{}", r.id);
        }
        assert!(rules.len() >= 200, "{} rules", rules.len());
    }

    #[test]
    fn every_rule_belongs_to_a_public_function() {
        let names: HashSet<_> = FUNCTIONS.iter().map(|f| f.name).collect();
        for r in all() {
            let known = names.contains(r.function) || r.function.starts_with("nvml");
            assert!(known || r.function.starts_with("VGPU_"), "{}: {}", r.id, r.function);
        }
    }
}
