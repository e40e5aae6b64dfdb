#include "world/control/tree_gather.hpp"

#include <algorithm>

namespace amldist::world {
namespace {

std::string frame_of(FrameKind kind, const GatherKey& key, const calls::Pieces& pieces) {
  FrameWriter writer(kind);
  writer.number(key.communicator).number(key.number).number(pieces.runs().size());
  for (const calls::Pieces::Run& run : pieces.runs()) writer.number(run.first).number(run.count).text(run.piece);
  return writer.take();
}

GatherKey read_key(Frame& frame) {
  const std::uint64_t communicator = frame.number();
  return {communicator, frame.number()};
}

calls::Pieces read_pieces(Frame& frame) {
  calls::Pieces pieces;
  for (std::uint64_t runs = frame.number(); runs > 0; --runs) {
    calls::Pieces::Run run;
    run.first = static_cast<std::uint32_t>(frame.number());
    run.count = static_cast<std::uint32_t>(frame.number());
    run.piece = frame.text();
    if (frame.is_short()) break;
    pieces.add(std::move(run));
  }
  return pieces;
}

}  // namespace

void TreeGather::begin(const GatherKey& key, std::uint32_t rank, std::string piece, Neighbours neighbours) {
  const auto at = gatherings_.try_emplace(key).first;
  at->second.pieces.add({rank, 1, std::move(piece)});
  at->second.neighbours = std::move(neighbours);
  advance(at);
}

void TreeGather::on_piece(Frame& frame) {
  const auto at = gatherings_.try_emplace(read_key(frame)).first;
  at->second.pieces.add(read_pieces(frame));
  advance(at);
}

void TreeGather::advance(std::map<GatherKey, Gathering>::iterator at) {
  Gathering& gathering = at->second;
  if (!gathering.neighbours || gathering.pieces.size() < gathering.neighbours->ranks) return;
  gathering.pieces.merge();
  if (!gathering.neighbours->parent) return finish(at, std::move(gathering.pieces));
  outside_.send_to(*gathering.neighbours->parent, frame_of(FrameKind::piece, at->first, gathering.pieces));
  gathering.pieces = calls::Pieces();
  gathering.neighbours->ranks = SIZE_MAX;  // what comes now comes from above
}

void TreeGather::on_pieces(Frame& frame) {
  const auto at = gatherings_.find(read_key(frame));
  if (at == gatherings_.end() || !at->second.neighbours) return;
  calls::Pieces pieces = read_pieces(frame);
  pieces.merge();
  finish(at, std::move(pieces));
}

void TreeGather::finish(std::map<GatherKey, Gathering>::iterator at, calls::Pieces pieces) {
  const GatherKey key = at->first;
  const std::vector<std::uint32_t> children = std::move(at->second.neighbours->children);
  gatherings_.erase(at);
  if (!children.empty()) {
    const std::string down = frame_of(FrameKind::pieces, key, pieces);
    for (const std::uint32_t child : children) outside_.send_to(child, down);
  }
  outside_.on_complete(key, std::move(pieces));
}

void TreeGather::forget(std::uint64_t communicator) {
  std::erase_if(gatherings_, [&](const auto& each) { return each.first.communicator == communicator; });
}

TreeGather::Neighbours neighbours_in_tree(const CommTree& tree, std::uint32_t world_rank) {
  const auto nobody = [](std::uint32_t) { return false; };
  return {tree.parent_of(world_rank, nobody), tree.children_of(world_rank, nobody), tree.subtree_size(world_rank)};
}

TreeGather::Neighbours neighbours_in_node(const RankTable& table, std::span<const std::uint32_t> members,
                                          std::uint32_t world_rank) {
  std::vector<std::uint32_t> there;
  for (const std::uint32_t member : members) {
    if (table.node_of(member) == table.node_of(world_rank)) there.push_back(member);
  }
  TreeGather::Neighbours neighbours;
  const std::uint32_t first = there.front();
  if (first != world_rank) {
    neighbours.parent = first;
    return neighbours;
  }
  neighbours.ranks = there.size();
  neighbours.children.assign(there.begin() + 1, there.end());
  return neighbours;
}

}  // namespace amldist::world
