#include "fabric/verbs/rdma_link.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

namespace amldist::fabric {
namespace {

constexpr int access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

VerbsOutcome failed(const char* stage, int error) { return VerbsFailure{stage, error, 0}; }

/// Some verbs return the errno; others return -1 and set errno.
int errno_of(int status) { return status > 0 ? status : errno; }

static_assert(sizeof(RemotePlace) == 16);

struct ListOfDevices {
  const VerbsApi& api;
  int count = 0;
  ibv_device** list = nullptr;

  explicit ListOfDevices(const VerbsApi& verbs) : api(verbs), list(verbs.get_device_list(&count)) {}
  ListOfDevices(const ListOfDevices&) = delete;
  ListOfDevices& operator=(const ListOfDevices&) = delete;
  ~ListOfDevices() {
    if (list != nullptr) api.free_device_list(list);
  }
};

}  // namespace

PinnedBuffer::PinnedBuffer(std::size_t size) {
  void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) bytes_ = {static_cast<std::byte*>(memory), size};
}

VerbsOutcome RdmaDevice::find(const VerbsApi& api) {
  const ListOfDevices devices(api);
  if (devices.list == nullptr) return failed("ibv_get_device_list", errno);
  for (int i = 0; i < devices.count; ++i) {
    if (target_.device != api.get_device_name(devices.list[i])) continue;
    context_ = {api.open_device(devices.list[i]), api.close_device};
    return context_ ? VerbsOutcome() : failed("ibv_open_device", errno);
  }
  return failed("ibv_get_device_list", ENODEV);
}

VerbsOutcome RdmaDevice::read_port() {
  // The exported function fills the old, shorter structure; the new one starts with the same fields.
  ibv_port_attr attributes = {};
  const int status =
      api_->query_port(context_.get(), target_.port, reinterpret_cast<_compat_ibv_port_attr*>(&attributes));
  if (status != 0) return failed("ibv_query_port", errno_of(status));
  lid_ = attributes.lid;
  mtu_ = attributes.active_mtu;
  const int got = api_->query_gid(context_.get(), target_.port, static_cast<int>(target_.gid_index), &gid_);
  if (got != 0 && target_.ethernet) return failed("ibv_query_gid", errno_of(got));
  return {};
}

VerbsOutcome RdmaDevice::open(const VerbsApi& api, const LinkTarget& target, std::size_t bytes, RdmaDevice& device) {
  device.api_ = &api;
  device.target_ = target;
  device.buffer_ = PinnedBuffer(bytes);
  if (device.memory().empty()) return failed("mmap", errno);
  if (auto failure = device.find(api)) return failure;
  device.domain_ = {api.alloc_pd(device.context_.get()), api.dealloc_pd};
  if (!device.domain_) return failed("ibv_alloc_pd", errno);
  device.region_ = {api.reg_mr(device.domain_.get(), device.memory().data(), bytes, access_flags), api.dereg_mr};
  if (!device.region_) return failed("ibv_reg_mr", errno);
  return device.read_port();
}

VerbsOutcome RdmaDevice::register_gpu(void* address, std::size_t bytes, int dmabuf) {
  gpu_address_ = static_cast<std::byte*>(address);
  gpu_region_ = {api_->reg_mr(domain_.get(), address, bytes, access_flags), api_->dereg_mr};
  if (gpu_region_) return {};
  const int error = errno;
  if (dmabuf < 0 || api_->reg_dmabuf_mr == nullptr) return failed("registering memory of the GPU", error);
  gpu_region_ = {
      api_->reg_dmabuf_mr(domain_.get(), 0, bytes, reinterpret_cast<std::uint64_t>(address), dmabuf, access_flags),
      api_->dereg_mr};
  return gpu_region_ ? VerbsOutcome() : failed("registering memory of the GPU as DMA-BUF", errno);
}

std::optional<RemotePlace> RdmaDevice::gpu_memory() const noexcept {
  if (!gpu_region_) return std::nullopt;
  return RemotePlace{reinterpret_cast<std::uint64_t>(gpu_address_), gpu_region_->rkey};
}

bool RdmaDevice::supports_dmabuf() const noexcept {
  if (api_ == nullptr || api_->reg_dmabuf_mr == nullptr || !domain_) return false;
  // The same probe as NCCL's: an invalid descriptor. EBADF means that the kernel knows the call.
  errno = 0;
  ibv_mr* const region = api_->reg_dmabuf_mr(domain_.get(), 0, 0, 0, -1, 0);
  if (region != nullptr) api_->dereg_mr(region);
  return errno != EOPNOTSUPP && errno != EPROTONOSUPPORT && errno != ENOTTY && errno != EINVAL;
}

VerbsOutcome RdmaLink::make(const RdmaDevice& device, RdmaLink& link) {
  const VerbsApi& api = device.api();
  link.pair_.reset();  // before its completion queue
  link.queue_.reset();
  link.device_ = &device;
  link.queue_ = {api.create_cq(device.context_.get(), 4, nullptr, nullptr, 0), api.destroy_cq};
  if (!link.queue_) return failed("ibv_create_cq", errno);
  ibv_qp_init_attr wanted = {};
  wanted.send_cq = link.queue_.get();
  wanted.recv_cq = link.queue_.get();
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap.max_send_wr = 4;
  wanted.cap.max_recv_wr = 1;
  wanted.cap.max_send_sge = 1;
  wanted.cap.max_recv_sge = 1;
  link.pair_ = {api.create_qp(device.domain_.get(), &wanted), api.destroy_qp};
  if (!link.pair_) return failed("ibv_create_qp", errno);
  return link.to_init();
}

LinkAddress RdmaLink::address() const noexcept {
  LinkAddress out;
  out.qp_number = pair_->qp_num;
  out.first_packet = pair_->qp_num & 0xffffff;
  out.remote_key = device_->region_->rkey;
  out.mtu = device_->mtu_;
  out.buffer = reinterpret_cast<std::uint64_t>(device_->memory().data());
  out.lid = device_->lid_;
  std::memcpy(out.gid.data(), &device_->gid_, out.gid.size());
  return out;
}

VerbsOutcome RdmaLink::to_init() {
  ibv_qp_attr wanted = {};
  wanted.qp_state = IBV_QPS_INIT;
  wanted.pkey_index = device_->target().pkey_index;
  wanted.port_num = device_->target().port;
  wanted.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  const int status = device_->api().modify_qp(pair_.get(), &wanted,
                                              IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  return status == 0 ? VerbsOutcome() : failed("ibv_modify_qp to INIT", errno_of(status));
}

VerbsOutcome RdmaLink::to_ready_to_receive(const LinkAddress& peer) {
  const LinkTarget& own = device_->target();
  ibv_qp_attr wanted = {};
  wanted.qp_state = IBV_QPS_RTR;
  wanted.path_mtu = static_cast<ibv_mtu>(std::min(peer.mtu, device_->mtu_));
  wanted.dest_qp_num = peer.qp_number;
  wanted.rq_psn = peer.first_packet;
  wanted.max_dest_rd_atomic = 1;
  wanted.min_rnr_timer = 12;
  wanted.ah_attr.port_num = own.port;
  wanted.ah_attr.dlid = peer.lid;
  if (own.ethernet) {
    wanted.ah_attr.is_global = 1;
    std::memcpy(&wanted.ah_attr.grh.dgid, peer.gid.data(), peer.gid.size());
    wanted.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(own.gid_index);
    wanted.ah_attr.grh.hop_limit = 64;
  }
  const int status = device_->api().modify_qp(pair_.get(), &wanted,
                                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                                  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  return status == 0 ? VerbsOutcome() : failed("ibv_modify_qp to RTR", errno_of(status));
}

VerbsOutcome RdmaLink::to_ready_to_send() {
  ibv_qp_attr wanted = {};
  wanted.qp_state = IBV_QPS_RTS;
  wanted.timeout = 14;   // 4.096 us * 2^14 = 67 ms, NCCL's older default
  wanted.retry_cnt = 6;  // 7 retries for ever on soft-RoCE
  wanted.rnr_retry = 6;
  wanted.sq_psn = address().first_packet;
  wanted.max_rd_atomic = 1;
  const int status = device_->api().modify_qp(
      pair_.get(), &wanted,
      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  return status == 0 ? VerbsOutcome() : failed("ibv_modify_qp to RTS", errno_of(status));
}

VerbsOutcome RdmaLink::connect(const LinkAddress& peer) {
  VerbsOutcome failure = to_ready_to_receive(peer);
  // Over RoCE the kernel resolves the peer's MAC here. On a link that has just come up, the first attempt may time out.
  constexpr int more_attempts = 2;
  for (int i = 0; failure && failure->error == ETIMEDOUT && i < more_attempts; ++i) failure = to_ready_to_receive(peer);
  if (failure) return failure;
  return to_ready_to_send();
}

VerbsOutcome RdmaLink::wait(Clock::time_point deadline) {
  constexpr timespec pause = {0, 50'000};
  for (int turn = 0;; ++turn) {
    ibv_wc completion = {};
    const int got = ::ibv_poll_cq(queue_.get(), 1, &completion);
    if (got < 0) return failed("ibv_poll_cq", errno);
    if (got > 0) {
      if (completion.status == IBV_WC_SUCCESS) return {};
      return VerbsFailure{"RDMA write", 0, static_cast<std::uint32_t>(completion.status)};
    }
    if (Clock::now() >= deadline) return failed("RDMA write", ETIMEDOUT);
    if (turn > 1000) static_cast<void>(::nanosleep(&pause, nullptr));
  }
}

VerbsOutcome RdmaLink::start_write(std::size_t from, const RemotePlace& to, std::uint32_t bytes, Source source) {
  const bool of_gpu = source == Source::gpu;
  ibv_sge piece = {};
  piece.addr = reinterpret_cast<std::uint64_t>((of_gpu ? device_->gpu_address_ : device_->memory().data()) + from);
  piece.length = bytes;
  piece.lkey = of_gpu ? device_->gpu_region_->lkey : device_->region_->lkey;
  ibv_send_wr request = {};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  std::memcpy(&request.wr, &to, sizeof to);
  ibv_send_wr* rejected = nullptr;
  const int status = ::ibv_post_send(pair_.get(), &request, &rejected);
  return status == 0 ? VerbsOutcome() : failed("ibv_post_send", errno_of(status));
}

VerbsOutcome RdmaLink::write(std::size_t from, const RemotePlace& to, std::uint32_t bytes, Clock::time_point deadline) {
  if (auto failure = start_write(from, to, bytes)) return failure;
  return wait(deadline);
}

}  // namespace amldist::fabric
