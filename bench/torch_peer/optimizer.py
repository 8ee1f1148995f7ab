"""AdamW with gradient clipping as mixed-precision training does it on a CPU.

float32 parameters are updated in place. bfloat16 parameters have float32 master copies, moments and gradient sums: as
soon as autograd finishes a parameter's gradient it is added to the float32 sum and freed, and after the update the
masters are rounded back. The clipping factor rides along in PyTorch's fused kernel instead of a pass of its own.
"""
import torch


class AdamW:
    def __init__(self, parameters, lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, clip=1.0):
        self.parameters, self.clip = list(parameters), clip
        self.settings = dict(amsgrad=False, lr=lr, beta1=betas[0], beta2=betas[1], weight_decay=weight_decay, eps=eps,
                             maximize=False)
        self.mixed = self.parameters[0].dtype != torch.float32
        self.masters = [p.detach().float() if self.mixed else p.detach() for p in self.parameters]
        self.first, self.second = ([torch.zeros_like(m) for m in self.masters] for _ in range(2))
        self.steps = [torch.tensor(0.0, device=m.device) for m in self.masters]
        if self.mixed:
            self.sums = [torch.zeros_like(m) for m in self.masters]
            self.touched = [False] * len(self.sums)
            for i, p in enumerate(self.parameters):
                p.register_post_accumulate_grad_hook(lambda p, i=i: self._collect(i, p))

    def _collect(self, i, p):
        if self.touched[i]:
            self.sums[i].add_(p.grad)
        else:
            self.sums[i].copy_(p.grad)
        self.touched[i] = True
        p.grad = None

    @torch.no_grad()
    def step(self):
        """Clip by the global norm, update, forget the gradients. Returns the norm before clipping."""
        if self.mixed:
            assert all(self.touched), "a parameter got no gradient"
            gradients = self.sums
        else:
            gradients = [p.grad for p in self.parameters]
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        for step in self.steps:
            step += 1
        torch._fused_adamw_(self.masters, gradients, self.first, self.second, [], self.steps, **self.settings,
                            grad_scale=(norm / self.clip).clamp(min=1.0))
        if self.mixed:
            torch._foreach_copy_(self.parameters, self.masters)
            self.touched = [False] * len(self.sums)
        else:
            for p in self.parameters:
                p.grad = None
        return norm
