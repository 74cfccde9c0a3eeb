//! What calls are carried out by.

/// The services of the agent, each with a view of its own.
#[derive(Clone, Debug)]
pub struct Services<O, G, N> {
    /// Objects of every kind: [`GuestRegistry`](crate::GuestRegistry), [`ObjectRegistry`](crate::ObjectRegistry) and
    /// [`MachineRegistry`](crate::MachineRegistry).
    pub objects: O,
    /// The way to guests that run: [`GuestStreams`](crate::GuestStreams).
    pub guests: G,
    /// The node itself: [`NodeView`](crate::NodeView), [`Maintained`](crate::Maintained) and
    /// [`ImageRegistry`](crate::ImageRegistry).
    pub node: N,
}
