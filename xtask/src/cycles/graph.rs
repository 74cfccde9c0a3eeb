//! Strongly connected components of a directed graph, by Tarjan's algorithm.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::ModulePath;

/// Nodes and the edges that leave them.
#[derive(Default)]
pub(super) struct Graph(BTreeMap<ModulePath, BTreeSet<ModulePath>>);

/// State of one search.
#[derive(Default)]
struct Search {
    /// Order in which nodes were met.
    order: BTreeMap<ModulePath, usize>,
    /// Lowest order that a node reaches through nodes on the stack.
    low: BTreeMap<ModulePath, usize>,
    stack: Vec<ModulePath>,
    components: Vec<Vec<ModulePath>>,
}

impl Graph {
    /// Adds an edge; one from a node to itself is none.
    pub(super) fn add(&mut self, from: ModulePath, to: ModulePath) {
        if from != to {
            self.0.entry(from).or_default().insert(to);
        }
    }

    /// The components of more than one node, each sorted, in order of their first nodes.
    pub(super) fn cycles(&self) -> Vec<Vec<ModulePath>> {
        let mut search = Search::default();
        for node in self.0.keys() {
            if !search.order.contains_key(node) {
                self.visit(node, &mut search);
            }
        }
        let mut cycles = search.components;
        cycles.retain(|component| component.len() > 1);
        cycles.sort();
        cycles
    }

    /// Visits `node` and all that it reaches. Recursion is as deep as the longest chain of imports of a crate.
    fn visit(&self, node: &ModulePath, search: &mut Search) {
        let order = search.order.len();
        search.order.insert(node.clone(), order);
        search.stack.push(node.clone());
        let mut low = order;
        for next in self.0.get(node).into_iter().flatten() {
            if !search.order.contains_key(next) {
                self.visit(next, search);
                low = low.min(search.low.get(next).copied().unwrap_or(order));
            } else if search.stack.contains(next) {
                low = low.min(search.order.get(next).copied().unwrap_or(order));
            }
        }
        search.low.insert(node.clone(), low);
        if low == order {
            let start = search.stack.iter().position(|entry| entry == node);
            let mut component = search.stack.split_off(start.unwrap_or(0));
            component.sort();
            search.components.push(component);
        }
    }
}
